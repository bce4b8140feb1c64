// POSIX and Linux calls that Swift cannot reach (variadic, macros, or hidden by Glibc's headers).
// Each returns 0 or a count on success and -errno on failure.
#ifndef CPOSIX_H
#define CPOSIX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/// open(2)/openat with O_CLOEXEC, retried on EINTR: a descriptor or -errno.
int cposix_open(const char *path, int flags, mode_t mode);
int cposix_open_at(int directory, const char *name, int flags, mode_t mode);
/// openat of a directory for the calls that take one only (O_PATH where the system has it). Without follows_link, a symbolic link is no
/// directory.
int cposix_open_directory(int directory, const char *name, int follows_link);
/// rename(2) to a name that is free: -EEXIST when it is not. Where the file system has no such call, a link and an unlink; where it has
/// no links, a look before the rename.
int cposix_rename_new(const char *old_path, const char *new_path);
/// preadv(2) of `count` bytes and one more, which is not kept: returns count + 1 when the file goes on.
ssize_t cposix_read_past(int fd, void *bytes, size_t count, int64_t offset);
/// fdatasync(2); fsync with F_FULLFSYNC where the platform has it.
int cposix_fdatasync(int fd);
/// sync_file_range(2): starts writing back, does not wait; does nothing where it is missing.
int cposix_start_writeback(int fd, int64_t offset, int64_t count);
/// posix_fadvise(2) POSIX_FADV_DONTNEED over the whole file.
int cposix_drop_cache(int fd);
/// fallocate(2): gives the range its blocks and the file that length; -ENOTSUP where it is missing or does not pay (tmpfs, which
/// would clear every page first).
int cposix_preallocate(int fd, int64_t count);
/// fallocate(2), everywhere: -EOPNOTSUPP where the file system has no such thing.
int cposix_allocate(int fd, int64_t count);
/// fallocate(2) with FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE; -ENOTSUP where it is missing.
int cposix_punch_hole(int fd, int64_t offset, int64_t count);

/// Open-file-description locks (fcntl F_OFD_SETLK): 0 granted, -EAGAIN held by somebody else.
int cposix_lock(int fd, int exclusive, int64_t offset, int64_t count);
int cposix_unlock(int fd, int64_t offset, int64_t count);
/// F_OFD_GETLK: 1 when an exclusive lock on the range would be refused, 0 when it would be granted.
int cposix_is_locked(int fd, int64_t offset, int64_t count);

/// The arguments as the C library has them, the program's name first: their number, or -1 where it does not tell. Nothing is read from
/// /proc, which a container or a chroot may lack.
int cposix_arguments(char *const **arguments);

/// Whether the system gives so many threads at once, at most 16: 0 or -errno.
int cposix_try_threads(int count);

/// Turns the echo of a terminal off until cposix_end_quiet(). It comes back before any signal ends or stops the process, and goes
/// again when the process continues. Returns 0 or -errno, EBUSY while there is another one.
int cposix_begin_quiet(int fd);
void cposix_end_quiet(void);
/// For whoever ends the process himself, also from a signal handler.
void cposix_restore_echo(void);
/// Columns of the terminal behind fd, or -errno.
int cposix_terminal_columns(int fd);

/// With 0, keeps other processes of the user from reading this one's memory and from seeing its namespaces, and the system from
/// writing it to a core file (Linux). Returns 0 or -errno.
int cposix_set_dumpable(int on);

/// Lets a crash end the process and say nothing: Swift's backtrace prints registers and the bytes that they point to, and waits on a
/// terminal. No memory is written to a core file.
void cposix_crash_silently(void);

/// Limits the arenas of glibc's malloc(3) to the processors, two at least: each keeps what it had once at most, and there are eight for each
/// processor otherwise. Nothing where there is another malloc.
void cposix_limit_arenas(void);

/// Whether a file has an access list (acl(5)), whose mask stands in the bits of the group then.
int cposix_has_access_list(const char *path);

/// posix_spawn(3) of a program by its path, in a session of its own, with /dev/null as standard input and outputs and no other
/// descriptor (but, where the system cannot close them, those that exec leaves open), and with signals as at a start.
/// `environment`: NULL for that of this process.
int cposix_spawn_detached(pid_t *process, char *const arguments[], char *const environment[]);
/// The same with that descriptor as standard output, in the session and with the error output of this process.
int cposix_spawn_printing(pid_t *process, int output, char *const arguments[], char *const environment[]);
/// environ(7), which ends with NULL.
char **cposix_environment(void);

/// Waits until a child has ended, and leaves it to be waited for once more, so that its number stays its own. 0 when it has exited with 0,
/// 1 when it has ended otherwise, or -errno, for instance when somebody else has waited for it.
int cposix_await_exit(pid_t process);

// Sockets: cposix_socket.c. Every descriptor that a call makes is closed by exec, and no call raises SIGPIPE. `wait` 0 makes a
// call that would wait return -EAGAIN, also on a blocking descriptor.

/// The most descriptors that one message carries: Linux's SCM_MAX_FD.
#define CPOSIX_MESSAGE_DESCRIPTORS_MAX 253

/// The bytes that a socket's path may have, without the zero at its end: sizeof sun_path - 1.
size_t cposix_unix_path_max(void);
/// socket(2) AF_UNIX, SOCK_STREAM: a descriptor or -errno.
int cposix_unix_socket(void);
/// socketpair(2) AF_UNIX, SOCK_STREAM.
int cposix_unix_socket_pair(int descriptors[2]);
/// bind(2) to a path; -ENAMETOOLONG when it does not fit, -EINVAL when it is empty.
int cposix_unix_bind(int fd, const char *path);
/// connect(2) to a path; errors as in cposix_unix_bind.
int cposix_unix_connect(int fd, const char *path);
/// accept4(2): a descriptor or -errno.
int cposix_accept(int fd);
/// 1 when the descriptor is a Unix stream socket, 0 when it is something else.
int cposix_is_unix_stream(int fd);
/// The path at which a Unix stream socket listens, with its zero, in `path`: 1, or 0 when the descriptor is something else, or listens at
/// no path, or at a longer one.
int cposix_listening_path(int fd, char *path, size_t size);
/// Gives a socket that somebody else made what the sockets made here have: closed by exec, no SIGPIPE.
int cposix_adopt_socket(int fd);
/// fcntl(2) F_SETFD with FD_CLOEXEC.
int cposix_set_close_on_exec(int fd);
/// fcntl(2) F_GETFD: 1 when exec closes it, else 0.
int cposix_is_close_on_exec(int fd);
/// fcntl(2) F_DUPFD_CLOEXEC: a descriptor or -errno.
int cposix_duplicate(int fd);
/// fcntl(2) F_SETFL: O_NONBLOCK off (1) or on (0).
int cposix_set_blocking(int fd, int blocking);
/// fcntl(2) F_GETFL: 0 when O_NONBLOCK is set, else 1.
int cposix_is_blocking(int fd);
/// SO_SNDTIMEO, which bounds connect(2), too; 0 means no limit.
int cposix_set_send_timeout(int fd, int64_t microseconds);
/// SO_RCVBUF (1) or SO_SNDBUF (0) in bytes, as the system counts them.
int cposix_buffer_size(int fd, int receiving);
int cposix_set_buffer_size(int fd, int receiving, int count);
/// SO_PEERCRED; getpeereid(3) and LOCAL_PEERPID on Darwin.
int cposix_peer_credentials(int fd, uid_t *user, gid_t *group, pid_t *process);
/// SO_PEERPIDFD: a descriptor of the peer's process, which can be read when the process has ended; -ENOPROTOOPT
/// where the kernel has none.
int cposix_peer_process(int fd);
/// Two descriptors, closed by exec and never waited for: what is written to the second makes the first readable. Both may be the same.
int cposix_open_wakeup(int *reading, int *writing);
/// Makes it readable; it stays so until cposix_clear_wakeup.
void cposix_wake(int writing);
void cposix_clear_wakeup(int reading);
/// poll(2) of a socket and of a wakeup, for reading, and for writing when that is asked for. The milliseconds as poll takes them. Bits: 1 the socket can be read or has ended,
/// 2 it can be written, 4 the wakeup; 0 when the time has passed, or -errno.
int cposix_wait(int fd, int writing, int wakeup, int milliseconds);
/// Names the calling thread, for those who look at the process; at most 15 bytes of it.
void cposix_name_thread(const char *name);
/// shutdown(2) of one direction or of both.
int cposix_shutdown(int fd, int reading, int writing);
/// sendmsg(2) with the descriptors as SCM_RIGHTS: the number of bytes sent, or -errno.
ssize_t cposix_send(
    int fd, const void *bytes, size_t count, const int *descriptors, size_t descriptor_count, int wait);
/// recv(2), with MSG_WAITALL when it may wait: the number of bytes, 0 at the end, or -errno. Descriptors that come along are
/// closed by the system.
ssize_t cposix_receive_whole(int fd, void *bytes, size_t count, int wait);
/// recvmsg(2) with SCM_RIGHTS: the number of bytes, 0 at the end, or -errno. When more than descriptors_max came, or fewer than
/// were sent (truncated), all that came are closed; descriptor_count still says how many did, where the system tells.
ssize_t cposix_receive(
    int fd, void *bytes, size_t count, int *descriptors, size_t descriptors_max, size_t *descriptor_count,
    int *truncated, int wait);
/// memfd_create(2): memory of this many bytes, all 0, whose length nobody can change any more; -ENOTSUP where it is missing.
int cposix_shared_memory(int64_t count);
/// 1 when the descriptor is such memory, of this many bytes and with a length that nobody can change, else 0.
int cposix_is_shared_memory(int fd, int64_t count);
/// getrlimit(2) RLIMIT_NOFILE; UINT64_MAX means no limit.
int cposix_descriptor_limit(uint64_t *soft, uint64_t *hard);
/// setrlimit(2) RLIMIT_NOFILE, the soft limit only.
int cposix_set_soft_descriptor_limit(uint64_t soft);

#endif
