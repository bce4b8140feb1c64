// The system calls that wait for a disk, for time or for a peer, under the names of the C library: the linker takes these functions
// in place of the library's for all code of a test program, Foundation's included.
#define _GNU_SOURCE
#include "cblocking.h"

#ifdef __linux__
#include <features.h>
#endif

#if defined(__linux__) && defined(__GLIBC__) && !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer)

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic(cblocking_observer) current;

int cblocking_observe(cblocking_observer observer) {
    atomic_store(&current, observer);
    return 0;
}

static void begin(const char *name) {
    cblocking_observer observer = atomic_load_explicit(&current, memory_order_relaxed);
    if (observer) observer(name);
}

// Writing to the disk
int fsync(int fd) { begin("fsync"); return (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { begin("fdatasync"); return (int)syscall(SYS_fdatasync, fd); }
int ftruncate(int fd, off_t size) { begin("ftruncate"); return (int)syscall(SYS_ftruncate, fd, size); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    begin("pwrite");
    return syscall(SYS_pwrite64, fd, bytes, count, offset);
}

// Names
int mkdir(const char *path, mode_t mode) { begin("mkdir"); return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode); }
int rmdir(const char *path) { begin("rmdir"); return (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); }
int unlink(const char *path) { begin("unlink"); return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0); }
int unlinkat(int fd, const char *path, int flags) { begin("unlinkat"); return (int)syscall(SYS_unlinkat, fd, path, flags); }
int rename(const char *old, const char *new) {
    begin("rename");
    return (int)syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
}
int renameat(int oldfd, const char *old, int newfd, const char *new) {
    begin("renameat");
    return (int)syscall(SYS_renameat2, oldfd, old, newfd, new, 0);
}

// Reading from the disk
ssize_t pread(int fd, void *bytes, size_t count, off_t offset) {
    begin("pread");
    return syscall(SYS_pread64, fd, bytes, count, offset);
}

// Time and peers
int usleep(useconds_t microseconds) {
    struct timespec time = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    begin("usleep");
    return (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL) ? -1 : 0;
}
int nanosleep(const struct timespec *time, struct timespec *rest) {
    begin("nanosleep");
    return (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, time, rest);
}
int poll(struct pollfd *fds, nfds_t count, int milliseconds) {
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    if (milliseconds) begin("poll");
    return (int)syscall(SYS_ppoll, fds, count, milliseconds < 0 ? NULL : &time, NULL, 0);
}

#else

int cblocking_observe(cblocking_observer observer) {
    (void)observer;
    return -1;
}

#endif
