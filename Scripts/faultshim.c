// Stands between a program and the C library (LD_PRELOAD), counts the calls that read or change files below given directories,
// and at one of them kills the process or lets the call fail. Linux, glibc. Driven by Scripts/faults.py through the environment:
//
//   FAULT_ROOTS       absolute directories, with a colon between them; calls about other files pass and do not count
//   FAULT_TRACE       a file; gets the line "number operation byte-count path": of each call, or of the faulted one with FAULT_AT
//   FAULT_AT          the number of the call to fault, from 1
//   FAULT_ACTION      kill-before, kill-after, kill-torn (a write: its first FAULT_BYTES bytes reach the file), fail,
//                     fill (a write: its first FAULT_BYTES bytes are written and returned; later calls fail),
//                     lie (a write: nothing is written, and it reports success), deny (only what FAULT_OPERATIONS lists fails, from FAULT_AT on)
//   FAULT_ERRNO       the error number of calls that fail
//   FAULT_OPERATIONS  operations that fail from FAULT_AT on, with a comma between them; without it only the call FAULT_AT fails
//   FAULT_SHORT       1: reads and writes move about half of what was asked, and every other one is interrupted first (EINTR)
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { descriptor_count = 1 << 16 };

static const char *roots, *operations, *action;
static long fault_at;
static int fault_errno, trace_fd = -1, is_short;
static size_t fault_bytes;
static atomic_long counter, transfer_counter;
static atomic_int is_failing;
// Paths of open files below the roots, by descriptor.
static _Atomic(char *) tracked[descriptor_count];

__attribute__((constructor)) static void begin(void) {
  roots = getenv("FAULT_ROOTS");
  operations = getenv("FAULT_OPERATIONS");
  action = getenv("FAULT_ACTION");
  const char *text = getenv("FAULT_AT");
  fault_at = text ? atol(text) : 0;
  text = getenv("FAULT_ERRNO");
  fault_errno = text ? atoi(text) : EIO;
  text = getenv("FAULT_BYTES");
  fault_bytes = text ? (size_t)atol(text) : 0;
  is_short = getenv("FAULT_SHORT") != NULL;
  text = getenv("FAULT_TRACE");
  if (!text) return;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) abort();
  // Out of the way of the program's own numbers.
  trace_fd = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 900);
  if (trace_fd < 0) abort();
  syscall(SYS_close, fd);
}

static int is_below_roots(const char *path) {
  if (!roots || !path) return 0;
  for (const char *root = roots; *root;) {
    size_t length = strcspn(root, ":");
    if (length && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0)) return 1;
    root += length;
    if (*root == ':') root++;
  }
  return 0;
}

static int is_listed(const char *operation) {
  if (!operations) return 0;
  size_t length = strlen(operation);
  for (const char *name = operations; *name;) {
    size_t here = strcspn(name, ",");
    if (here == length && strncmp(name, operation, length) == 0) return 1;
    name += here;
    if (*name == ',') name++;
  }
  return 0;
}

static void note(long number, const char *operation, size_t count, const char *path) {
  if (trace_fd < 0) return;
  char line[PATH_MAX + 80];
  int length = snprintf(line, sizeof line, "%ld %s %zu %s\n", number, operation, count, path);
  if (syscall(SYS_write, trace_fd, line, (size_t)length) != length) abort();
}

static void end_process(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

enum verdict { pass, fail, kill_after, torn, filled, lied };

/// Counts a call and says what becomes of it. `count`: bytes to be written, 0 for everything else.
static enum verdict judge(const char *operation, size_t count, const char *path) {
  long number = atomic_fetch_add(&counter, 1) + 1;
  if (!fault_at) {
    note(number, operation, count, path);
    return pass;
  }
  if (number == fault_at && action) {
    note(number, operation, count, path);
    if (strcmp(action, "kill-before") == 0) end_process();
    if (strcmp(action, "kill-after") == 0) return kill_after;
    if (strcmp(action, "kill-torn") == 0) return fault_bytes && fault_bytes < count ? torn : kill_after;
    if (strcmp(action, "lie") == 0) return count ? lied : pass;
    if (operations) atomic_store(&is_failing, 1);
    if (strcmp(action, "deny") == 0 && !is_listed(operation)) return pass;
    if (strcmp(action, "fill") == 0 && fault_bytes && fault_bytes < count) return filled;
    errno = fault_errno;
    return fail;
  }
  if (atomic_load(&is_failing) && is_listed(operation)) {
    errno = fault_errno;
    return fail;
  }
  return pass;
}

#define REAL(type, name, ...)                                          \
  static type (*real)(__VA_ARGS__);                                    \
  if (!real) {                                                         \
    *(void **)&real = dlsym(RTLD_NEXT, name);                          \
    if (!real) abort();                                                \
  }

// The call itself, under the verdict.
#define CARRY_OUT(type, failed, operation, path, call)                 \
  enum verdict verdict = judge(operation, 0, path);                    \
  if (verdict == fail) return failed;                                  \
  type result = call;                                                  \
  if (verdict != pass) end_process();                                  \
  return result;

static const char *path_of(int fd) {
  return fd >= 0 && fd < descriptor_count ? atomic_load(&tracked[fd]) : NULL;
}

static void remember(int fd, const char *path) {
  if (fd < 0 || fd >= descriptor_count) return;
  // What is forgotten leaks: another thread may be looking at it.
  atomic_store(&tracked[fd], path ? strdup(path) : NULL);
}

// Opening and closing

static const char *opening(int flags) {
  if (flags & O_CREAT) return "create";
  return (flags & O_ACCMODE) == O_RDONLY ? "open-read" : "open-write";
}

static int open_counted(int directory, const char *path, int flags, mode_t mode) {
  REAL(int, "openat", int, const char *, int, ...);
  // A name in a directory that was opened before.
  char joined[PATH_MAX];
  const char *parent = directory != AT_FDCWD && path[0] != '/' ? path_of(directory) : NULL;
  if (parent) {
    snprintf(joined, sizeof joined, "%s/%s", parent, path);
    return open_counted(AT_FDCWD, joined, flags, mode);
  }
  // Opening a directory comes before each opening of a file in it, and is no call of its own.
  if (is_below_roots(path) && (flags & O_DIRECTORY)) {
    int fd = real(directory, path, flags, mode);
    remember(fd, path);
    return fd;
  }
  // The driver fails no file outside its roots, nor one whose path is relative to the working directory.
  if (!is_below_roots(path)) {
    int fd = real(directory, path, flags, mode);
    remember(fd, NULL);
    return fd;
  }
  enum verdict verdict = judge(opening(flags), 0, path);
  if (verdict == fail) return -1;
  int fd = real(directory, path, flags, mode);
  if (verdict != pass) end_process();
  remember(fd, path);
  return fd;
}

static mode_t mode_argument(int flags, va_list list) {
  return flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(list, mode_t) : 0;
}

#define OPEN(name)                                                     \
  int name(const char *path, int flags, ...) {                         \
    va_list list;                                                      \
    va_start(list, flags);                                             \
    mode_t mode = mode_argument(flags, list);                          \
    va_end(list);                                                      \
    return open_counted(AT_FDCWD, path, flags, mode);                  \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                   \
  int name(int directory, const char *path, int flags, ...) {          \
    va_list list;                                                      \
    va_start(list, flags);                                             \
    mode_t mode = mode_argument(flags, list);                          \
    va_end(list);                                                      \
    return open_counted(directory, path, flags, mode);                 \
  }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
  REAL(int, "close", int);
  remember(fd, NULL);
  return real(fd);
}

DIR *opendir(const char *path) {
  REAL(DIR *, "opendir", const char *);
  if (!is_below_roots(path)) return real(path);
  enum verdict verdict = judge("open-directory", 0, path);
  if (verdict == fail) return NULL;
  DIR *stream = real(path);
  if (verdict != pass) end_process();
  if (stream) remember(dirfd(stream), path);
  return stream;
}

int closedir(DIR *stream) {
  REAL(int, "closedir", DIR *);
  remember(dirfd(stream), NULL);
  return real(stream);
}

#define READDIR(name, entry)                                           \
  struct entry *name(DIR *stream) {                                    \
    REAL(struct entry *, #name, DIR *);                                \
    const char *path = path_of(dirfd(stream));                         \
    if (!path) return real(stream);                                    \
    CARRY_OUT(struct entry *, NULL, "read-directory", path, real(stream)) \
  }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

// Reading and writing

/// How much of a transfer to do with FAULT_SHORT: 0 to be interrupted.
static size_t shortened(size_t count) {
  if (!is_short) return count;
  if (atomic_fetch_add(&transfer_counter, 1) % 2 == 0) return 0;
  return count > 1 ? (count + 1) / 2 : count;
}

#define TRANSFER(name, operation, buffer_type, isWrite, offset_declaration, ...)       \
  ssize_t name(int fd, buffer_type buffer, size_t count offset_declaration) {         \
    REAL(ssize_t, #name, int, buffer_type, size_t offset_declaration);                \
    const char *path = path_of(fd);                                                   \
    if (!path) return real(fd, buffer, count __VA_OPT__(, ) __VA_ARGS__);             \
    if (is_short && count) {                                                          \
      count = shortened(count);                                                       \
      if (!count) {                                                                   \
        errno = EINTR;                                                                \
        return -1;                                                                    \
      }                                                                               \
    }                                                                                 \
    enum verdict verdict = judge(operation, isWrite ? count : 0, path);               \
    if (verdict == fail) return -1;                                                   \
    if (verdict == lied) return (ssize_t)count;                                       \
    if (verdict == torn || verdict == filled) count = fault_bytes;                    \
    ssize_t result = real(fd, buffer, count __VA_OPT__(, ) __VA_ARGS__);              \
    if (verdict == torn || verdict == kill_after) end_process();                      \
    return result;                                                                    \
  }
#define COMMA ,
TRANSFER(read, "read", void *, 0, )
TRANSFER(write, "write", const void *, 1, )
TRANSFER(pread, "read", void *, 0, COMMA off_t offset, offset)
TRANSFER(pread64, "read", void *, 0, COMMA off_t offset, offset)
TRANSFER(pwrite, "write", const void *, 1, COMMA off_t offset, offset)
TRANSFER(pwrite64, "write", const void *, 1, COMMA off_t offset, offset)

// Vectored transfers are neither torn nor shortened.
#define VECTOR(name, operation, offset_declaration, ...)                              \
  ssize_t name(int fd, const struct iovec *vector, int count offset_declaration) {    \
    REAL(ssize_t, #name, int, const struct iovec *, int offset_declaration);          \
    const char *path = path_of(fd);                                                   \
    if (!path) return real(fd, vector, count __VA_OPT__(, ) __VA_ARGS__);             \
    CARRY_OUT(ssize_t, -1, operation, path, real(fd, vector, count __VA_OPT__(, ) __VA_ARGS__)) \
  }
VECTOR(readv, "read", )
VECTOR(writev, "write", )
VECTOR(preadv, "read", COMMA off_t offset, offset)
VECTOR(preadv64, "read", COMMA off_t offset, offset)
VECTOR(pwritev, "write", COMMA off_t offset, offset)
VECTOR(pwritev64, "write", COMMA off_t offset, offset)

ssize_t copy_file_range(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t count, unsigned flags) {
  REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
  const char *path = path_of(out);
  if (!path) return real(in, in_offset, out, out_offset, count, flags);
  CARRY_OUT(ssize_t, -1, "write", path, real(in, in_offset, out, out_offset, count, flags))
}

// Calls on a descriptor that are all alike

#define ON_DESCRIPTOR(name, operation, parameters, ...)                               \
  int name(int fd parameters) {                                                       \
    REAL(int, #name, int parameters);                                                 \
    const char *path = path_of(fd);                                                   \
    if (!path) return real(fd __VA_OPT__(, ) __VA_ARGS__);                            \
    CARRY_OUT(int, -1, operation, path, real(fd __VA_OPT__(, ) __VA_ARGS__))          \
  }
ON_DESCRIPTOR(fsync, "sync", )
ON_DESCRIPTOR(fdatasync, "sync", )
ON_DESCRIPTOR(sync_file_range, "start-writeback", COMMA off64_t offset COMMA off64_t count COMMA unsigned flags,
              offset, count, flags)
ON_DESCRIPTOR(ftruncate, "truncate", COMMA off_t size, size)
ON_DESCRIPTOR(ftruncate64, "truncate", COMMA off_t size, size)
ON_DESCRIPTOR(fallocate, "allocate", COMMA int mode COMMA off_t offset COMMA off_t count, mode, offset, count)
ON_DESCRIPTOR(fallocate64, "allocate", COMMA int mode COMMA off_t offset COMMA off_t count, mode, offset, count)
ON_DESCRIPTOR(fchmod, "set-attributes", COMMA mode_t mode, mode)
ON_DESCRIPTOR(futimens, "set-attributes", COMMA const struct timespec times[2], times)
ON_DESCRIPTOR(fstat, "stat", COMMA struct stat *status, status)
ON_DESCRIPTOR(fstat64, "stat", COMMA struct stat64 *status, status)

static int control(int fd, int command, void *argument) {
  REAL(int, "fcntl", int, int, ...);
  const char *path = path_of(fd);
  if (!path || (command != F_OFD_SETLK && command != F_OFD_GETLK)) return real(fd, command, argument);
  // Letting go cannot fail.
  if (command == F_OFD_SETLK && ((struct flock *)argument)->l_type == F_UNLCK) return real(fd, command, argument);
  CARRY_OUT(int, -1, "lock", path, real(fd, command, argument))
}

#define FCNTL(name)                                                                   \
  int name(int fd, int command, ...) {                                                \
    va_list list;                                                                     \
    va_start(list, command);                                                          \
    void *argument = va_arg(list, void *);                                            \
    va_end(list);                                                                     \
    return control(fd, command, argument);                                            \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

ssize_t readlink(const char *path, char *buffer, size_t size) {
  REAL(ssize_t, "readlink", const char *, char *, size_t);
  if (!is_below_roots(path)) return real(path, buffer, size);
  CARRY_OUT(ssize_t, -1, "read-link", path, real(path, buffer, size))
}

// Calls on a path that are all alike

#define ON_PATH(name, operation, path, declaration, ...)                              \
  int name declaration {                                                              \
    REAL(int, #name, ON_PATH_TYPES_##name);                                           \
    if (!is_below_roots(path)) return real(__VA_ARGS__);                              \
    CARRY_OUT(int, -1, operation, path, real(__VA_ARGS__))                            \
  }
#define ON_PATH_TYPES_rename const char *, const char *
#define ON_PATH_TYPES_renameat int, const char *, int, const char *
#define ON_PATH_TYPES_renameat2 int, const char *, int, const char *, unsigned
#define ON_PATH_TYPES_link const char *, const char *
#define ON_PATH_TYPES_symlink const char *, const char *
#define ON_PATH_TYPES_unlink const char *
#define ON_PATH_TYPES_unlinkat int, const char *, int
#define ON_PATH_TYPES_mkdir const char *, mode_t
#define ON_PATH_TYPES_mkdirat int, const char *, mode_t
#define ON_PATH_TYPES_rmdir const char *
#define ON_PATH_TYPES_chmod const char *, mode_t
#define ON_PATH_TYPES_truncate const char *, off_t
#define ON_PATH_TYPES_stat const char *, struct stat *
#define ON_PATH_TYPES_lstat const char *, struct stat *
ON_PATH(rename, "rename", to, (const char *from, const char *to), from, to)
ON_PATH(renameat, "rename", to, (int old, const char *from, int new, const char *to), old, from, new, to)
ON_PATH(renameat2, "rename", to, (int old, const char *from, int new, const char *to, unsigned flags), old, from, new, to, flags)
ON_PATH(link, "rename", to, (const char *from, const char *to), from, to)
ON_PATH(symlink, "make-link", path, (const char *target, const char *path), target, path)
ON_PATH(unlink, "remove", path, (const char *path), path)
ON_PATH(unlinkat, "remove", path, (int directory, const char *path, int flags), directory, path, flags)
ON_PATH(mkdir, "make-directory", path, (const char *path, mode_t mode), path, mode)
ON_PATH(mkdirat, "make-directory", path, (int directory, const char *path, mode_t mode), directory, path, mode)
ON_PATH(rmdir, "remove", path, (const char *path), path)
ON_PATH(chmod, "set-attributes", path, (const char *path, mode_t mode), path, mode)
ON_PATH(truncate, "truncate", path, (const char *path, off_t size), path, size)
ON_PATH(stat, "stat", path, (const char *path, struct stat *status), path, status)
ON_PATH(lstat, "stat", path, (const char *path, struct stat *status), path, status)
