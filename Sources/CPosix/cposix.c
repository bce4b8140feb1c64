#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "CPosix.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#endif

static int result(int value) { return value < 0 ? -errno : value; }

#if defined(__APPLE__)
#include <crt_externs.h>
int cposix_arguments(char *const **arguments) {
  *arguments = *_NSGetArgv();
  return *_NSGetArgc();
}
#else
static int argument_count = -1;
static char *const *argument_vector;

// glibc hands its constructors what main gets; musl does not, and leaves the count as it is.
#if defined(__GLIBC__)
__attribute__((constructor)) static void keep_arguments(int count, char *const *vector) {
  argument_count = count;
  argument_vector = vector;
}
#endif

int cposix_arguments(char *const **arguments) {
  *arguments = argument_vector;
  return argument_count;
}
#endif

int cposix_open(const char *path, int flags, mode_t mode) { return cposix_open_at(AT_FDCWD, path, flags, mode); }

int cposix_open_at(int directory, const char *name, int flags, mode_t mode) {
  int fd;
  do fd = openat(directory, name, flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return result(fd);
}

int cposix_open_directory(int directory, const char *name, int follows_link) {
#if defined(O_PATH)
  int flags = O_PATH | O_DIRECTORY;
#else
  int flags = O_RDONLY | O_DIRECTORY;
#endif
  return cposix_open_at(directory, name, flags | (follows_link ? 0 : O_NOFOLLOW), 0);
}

int cposix_rename_new(const char *old_path, const char *new_path) {
#if defined(__APPLE__)
  if (renamex_np(old_path, new_path, RENAME_EXCL) == 0) return 0;
#else
  // Not every C library has renameat2 and RENAME_NOREPLACE, which is 1.
  if (syscall(SYS_renameat2, AT_FDCWD, old_path, AT_FDCWD, new_path, 1) == 0) return 0;
#endif
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP && errno != EOPNOTSUPP) return -errno;
  struct stat status;
  // A link to a symbolic link is one to what that leads to on some systems.
  if (lstat(old_path, &status) == 0 && S_ISREG(status.st_mode)) {
    if (link(old_path, new_path) == 0) return result(unlink(old_path));
    if (errno == EEXIST) return -errno;
  }
  if (lstat(new_path, &status) == 0) return -EEXIST;
  return result(rename(old_path, new_path));
}

ssize_t cposix_read_past(int fd, void *bytes, size_t count, int64_t offset) {
  char more;
  struct iovec parts[] = {{bytes, count}, {&more, 1}};
  ssize_t done;
  do done = preadv(fd, parts, 2, offset);
  while (done < 0 && errno == EINTR);
  return done < 0 ? -errno : done;
}

int cposix_fdatasync(int fd) {
#if defined(__APPLE__)
  return result(fcntl(fd, F_FULLFSYNC));
#else
  int status;
  do status = fdatasync(fd);
  while (status < 0 && errno == EINTR);
  return result(status);
#endif
}

int cposix_start_writeback(int fd, int64_t offset, int64_t count) {
#if defined(__linux__)
  return result(sync_file_range(fd, offset, count, SYNC_FILE_RANGE_WRITE));
#else
  (void)fd, (void)offset, (void)count;
  return 0;
#endif
}

int cposix_drop_cache(int fd) {
#if defined(__linux__)
  return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#else
  return result(fcntl(fd, F_NOCACHE, 1));
#endif
}

int cposix_preallocate(int fd, int64_t count) {
#if defined(__linux__)
  struct statfs system;
  if (fstatfs(fd, &system) < 0) return -errno;
  if (system.f_type == TMPFS_MAGIC) return -ENOTSUP;
  return result(fallocate(fd, 0, 0, count));
#else
  (void)fd, (void)count;
  return -ENOTSUP;
#endif
}

int cposix_allocate(int fd, int64_t count) {
#if defined(__linux__)
  int status;
  do status = fallocate(fd, 0, 0, count);
  while (status < 0 && errno == EINTR);
  return result(status);
#else
  (void)fd, (void)count;
  return -EOPNOTSUPP;
#endif
}

int cposix_punch_hole(int fd, int64_t offset, int64_t count) {
#if defined(__linux__)
  int status;
  do status = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, count);
  while (status < 0 && errno == EINTR);
  return result(status);
#else
  (void)fd, (void)offset, (void)count;
  return -ENOTSUP;
#endif
}

#if !defined(F_OFD_SETLK)
// Darwin's numbers; it has the calls but keeps the names private.
#define F_OFD_SETLK 90
#define F_OFD_GETLK 92
#endif

static struct flock range(int type, int64_t offset, int64_t count) {
  struct flock lock;
  memset(&lock, 0, sizeof lock);
  lock.l_type = (short)type;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = count;
  return lock;
}

int cposix_lock(int fd, int exclusive, int64_t offset, int64_t count) {
  struct flock lock = range(exclusive ? F_WRLCK : F_RDLCK, offset, count);
  int outcome = result(fcntl(fd, F_OFD_SETLK, &lock));
  return outcome == -EACCES ? -EAGAIN : outcome;
}

int cposix_unlock(int fd, int64_t offset, int64_t count) {
  struct flock lock = range(F_UNLCK, offset, count);
  return result(fcntl(fd, F_OFD_SETLK, &lock));
}

int cposix_is_locked(int fd, int64_t offset, int64_t count) {
  struct flock lock = range(F_WRLCK, offset, count);
  int outcome = result(fcntl(fd, F_OFD_GETLK, &lock));
  return outcome < 0 ? outcome : lock.l_type != F_UNLCK;
}

// The terminal without echo, and what it was like before and is like meanwhile.
static volatile sig_atomic_t quiet_terminal = -1;
static struct termios terminal_before, terminal_meanwhile;

// The signals that end or stop a process and can be caught.
static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU};
enum { ENDING_COUNT = sizeof ending / sizeof ending[0] };
static struct sigaction handlers_before[ENDING_COUNT];

// Calls nothing but what a signal handler may call.
// In the background the terminal is somebody else's, and a call that sets it would be stopped.
static void set_terminal(int actions, const struct termios *state) {
  int terminal = quiet_terminal;
  if (terminal >= 0 && tcgetpgrp(terminal) == getpgrp()) tcsetattr(terminal, actions, state);
}

void cposix_restore_echo(void) { set_terminal(TCSANOW, &terminal_before); }

// Lets the signal do what it does by default. If the process goes on after it, so does the question.
static void with_echo(int number) {
  int code = errno;
  struct sigaction ours, usual = {.sa_handler = SIG_DFL};
  cposix_restore_echo();
  sigaction(number, &usual, &ours);
  raise(number);
  sigaction(number, &ours, NULL);
  set_terminal(TCSAFLUSH, &terminal_meanwhile);
  errno = code;
}

void cposix_end_quiet(void) {
  if (quiet_terminal < 0) return;
  cposix_restore_echo();
  quiet_terminal = -1;
  for (int i = 0; i < ENDING_COUNT; i++) sigaction(ending[i], &handlers_before[i], NULL);
}

int cposix_begin_quiet(int fd) {
  static int is_registered;
  if (quiet_terminal >= 0) return -EBUSY;
  // Another thread may end the program while this one waits for an answer.
  if (!is_registered && atexit(cposix_end_quiet) == 0) is_registered = 1;
  if (tcgetattr(fd, &terminal_before) < 0) return -errno;
  terminal_meanwhile = terminal_before;
  terminal_meanwhile.c_lflag &= ~(tcflag_t)ECHO;
  // Stops in the background, before there is anything to restore.
  if (tcsetattr(fd, TCSAFLUSH, &terminal_meanwhile) < 0) return -errno;
  quiet_terminal = fd;
  struct sigaction action = {.sa_handler = with_echo, .sa_flags = SA_NODEFER | SA_RESTART};
  for (int i = 0; i < ENDING_COUNT; i++) {
    sigaction(ending[i], NULL, &handlers_before[i]);
    // A signal that the parent process has set to be ignored stays ignored.
    if (handlers_before[i].sa_handler != SIG_IGN) sigaction(ending[i], &action, NULL);
  }
  return 0;
}

int cposix_terminal_columns(int fd) {
  struct winsize size;
  if (ioctl(fd, TIOCGWINSZ, &size) < 0) return -errno;
  return size.ws_col;
}

static void *pass(void *gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
  return NULL;
}

int cposix_try_threads(int count) {
  pthread_t threads[16];
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  int started = 0, status = 0;
  // All of them at once: none ends before the last one has begun.
  pthread_mutex_lock(&gate);
  while (started < count && started < 16 && status == 0) {
    status = pthread_create(&threads[started], NULL, pass, &gate);
    if (status == 0) started++;
  }
  pthread_mutex_unlock(&gate);
  while (started > 0) pthread_join(threads[--started], NULL);
  return -status;
}

void cposix_name_thread(const char *name) {
  char start[16];
  snprintf(start, sizeof start, "%s", name);
#if defined(__APPLE__)
  pthread_setname_np(start);
#else
  pthread_setname_np(pthread_self(), start);
#endif
}
