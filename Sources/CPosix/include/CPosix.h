// POSIX and Linux calls that Swift cannot reach (variadic, macros, or hidden by Glibc's headers).
// Each returns 0 or a count on success and -errno on failure.
#ifndef CPOSIX_H
#define CPOSIX_H

#include <stdint.h>
#include <sys/types.h>

/// open(2)/openat with O_CLOEXEC, retried on EINTR: a descriptor or -errno.
int cposix_open(const char *path, int flags, mode_t mode);
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

/// Turns terminal echo off (0) or on (1): returns the previous state (0/1), or -errno.
int cposix_set_echo(int fd, int on);
/// Columns of the terminal behind fd, or -errno.
int cposix_terminal_columns(int fd);

#endif
