#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "CPosix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <limits.h>
#endif
#if defined(__linux__)
#include <sys/eventfd.h>
#endif

// Room in a control message for the most that any call here asks for and one more, which tells "too many" from "all".
#define DESCRIPTORS_MAX (CPOSIX_MESSAGE_DESCRIPTORS_MAX + 1)

static int result(int value) { return value < 0 ? -errno : value; }

static ssize_t count_or_error(ssize_t value) { return value < 0 ? -errno : value; }

// Nothing but close(2) again could follow a failure, and on Linux the number is free by then.
static void close_all(const int *descriptors, size_t count) {
  for (size_t i = 0; i < count; i++) close(descriptors[i]);
}

#if !defined(SOCK_CLOEXEC) || defined(__APPLE__)
static int prepare(int fd) {
  int on = 1;
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return -errno;
#if defined(SO_NOSIGPIPE)
  if (setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) < 0) return -errno;
#else
  (void)on;
#endif
  return 0;
}
#endif

size_t cposix_unix_path_max(void) {
  struct sockaddr_un address;
  return sizeof address.sun_path - 1;
}

int cposix_unix_socket(void) {
#if defined(__APPLE__)
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return -errno;
  int status = prepare(fd);
  if (status < 0) close(fd);
  return status < 0 ? status : fd;
#else
  return result(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
#endif
}

int cposix_unix_socket_pair(int descriptors[2]) {
#if defined(__APPLE__)
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, descriptors) < 0) return -errno;
  int status = prepare(descriptors[0]);
  if (status == 0) status = prepare(descriptors[1]);
  if (status < 0) close_all(descriptors, 2);
  return status;
#else
  return result(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, descriptors));
#endif
}

static int fill(struct sockaddr_un *address, const char *path) {
  size_t count = strlen(path);
  if (count == 0) return -EINVAL;  // Linux would choose a name of its own in the abstract space
  if (count > cposix_unix_path_max()) return -ENAMETOOLONG;
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path, path, count);
  return 0;
}

int cposix_unix_bind(int fd, const char *path) {
  struct sockaddr_un address;
  int status = fill(&address, path);
  if (status < 0) return status;
  return result(bind(fd, (const struct sockaddr *)&address, sizeof address));
}

int cposix_unix_connect(int fd, const char *path) {
  struct sockaddr_un address;
  int status = fill(&address, path);
  if (status < 0) return status;
  return result(connect(fd, (const struct sockaddr *)&address, sizeof address));
}

int cposix_accept(int fd) {
#if defined(__APPLE__)
  int connection = accept(fd, NULL, NULL);
  if (connection < 0) return -errno;
  int status = prepare(connection);
  if (status < 0) close(connection);
  return status < 0 ? status : connection;
#else
  return result(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
#endif
}

int cposix_is_unix_stream(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0) return errno == ENOTSOCK ? 0 : -errno;
  struct sockaddr_storage address;
  socklen_t address_size = sizeof address;
  memset(&address, 0, sizeof address);
  if (getsockname(fd, (struct sockaddr *)&address, &address_size) < 0) return -errno;
  return type == SOCK_STREAM && address.ss_family == AF_UNIX;
}

int cposix_listening_path(int fd, char *path, size_t size) {
  int listens = 0;
  socklen_t listens_size = sizeof listens;
  int is_stream = cposix_is_unix_stream(fd);
  if (is_stream <= 0) return is_stream;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) < 0) return -errno;
  struct sockaddr_un address;
  socklen_t address_size = sizeof address;
  memset(&address, 0, sizeof address);
  if (getsockname(fd, (struct sockaddr *)&address, &address_size) < 0) return -errno;
  size_t length = strnlen(address.sun_path, sizeof address.sun_path);
  // Names that begin with a zero are no paths.
  if (!listens || length == 0 || length >= size) return 0;
  memcpy(path, address.sun_path, length);
  path[length] = 0;
  return 1;
}

int cposix_adopt_socket(int fd) {
#if defined(__APPLE__)
  return prepare(fd);
#else
  return result(fcntl(fd, F_SETFD, FD_CLOEXEC));
#endif
}

int cposix_set_close_on_exec(int fd) { return result(fcntl(fd, F_SETFD, FD_CLOEXEC)); }

int cposix_is_close_on_exec(int fd) {
  int flags = fcntl(fd, F_GETFD);
  return flags < 0 ? -errno : (flags & FD_CLOEXEC) != 0;
}

int cposix_duplicate(int fd) { return result(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

int cposix_set_blocking(int fd, int blocking) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return -errno;
  return result(fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK));
}

int cposix_is_blocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags < 0 ? -errno : (flags & O_NONBLOCK) == 0;
}

int cposix_set_send_timeout(int fd, int64_t microseconds) {
  struct timeval timeout;
  memset(&timeout, 0, sizeof timeout);
  timeout.tv_sec = (time_t)(microseconds / 1000000);
  timeout.tv_usec = (suseconds_t)(microseconds % 1000000);
  return result(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout));
}

int cposix_buffer_size(int fd, int receiving) {
  int value = 0;
  socklen_t size = sizeof value;
  if (getsockopt(fd, SOL_SOCKET, receiving ? SO_RCVBUF : SO_SNDBUF, &value, &size) < 0) return -errno;
  return value;
}

int cposix_set_buffer_size(int fd, int receiving, int count) {
  return result(setsockopt(fd, SOL_SOCKET, receiving ? SO_RCVBUF : SO_SNDBUF, &count, sizeof count));
}

int cposix_peer_credentials(int fd, uid_t *user, gid_t *group, pid_t *process) {
#if defined(__APPLE__)
  socklen_t size = sizeof *process;
  if (getpeereid(fd, user, group) < 0) return -errno;
  return result(getsockopt(fd, SOL_LOCAL, LOCAL_PEERPID, process, &size));
#else
  struct ucred credentials;
  socklen_t size = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0) return -errno;
  *user = credentials.uid;
  *group = credentials.gid;
  *process = credentials.pid;
  return 0;
#endif
}

int cposix_peer_process(int fd) {
#if defined(__linux__)
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
  int process = -1;
  socklen_t size = sizeof process;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) < 0) return -errno;
  return process;
#else
  (void)fd;
  return -ENOPROTOOPT;
#endif
}

int cposix_shutdown(int fd, int reading, int writing) {
  return result(shutdown(fd, reading ? (writing ? SHUT_RDWR : SHUT_RD) : SHUT_WR));
}

ssize_t cposix_send(
    int fd, const void *bytes, size_t count, const int *descriptors, size_t descriptor_count, int wait) {
  union {
    struct cmsghdr header;  // for its alignment
    char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)];
  } control;
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = count};
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor_count > CPOSIX_MESSAGE_DESCRIPTORS_MAX) return -EINVAL;
  if (descriptor_count > 0) {
    size_t size = sizeof(int) * descriptor_count;
    memset(&control, 0, sizeof control);
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(size);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(header), descriptors, size);
  }
  int flags = wait ? 0 : MSG_DONTWAIT;
#if defined(MSG_NOSIGNAL)
  flags |= MSG_NOSIGNAL;
#endif
  return count_or_error(sendmsg(fd, &message, flags));
}

ssize_t cposix_receive_whole(int fd, void *bytes, size_t count, int wait) {
  return count_or_error(recv(fd, bytes, count, wait ? MSG_WAITALL : MSG_DONTWAIT));
}

ssize_t cposix_receive(
    int fd, void *bytes, size_t count, int *descriptors, size_t descriptors_max, size_t *descriptor_count,
    int *truncated, int wait) {
  union {
    struct cmsghdr header;  // for its alignment
    char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)];
  } control;
  struct iovec part = {.iov_base = bytes, .iov_len = count};
  struct msghdr message;
  *descriptor_count = 0;
  *truncated = 0;
  if (descriptors_max > CPOSIX_MESSAGE_DESCRIPTORS_MAX) return -EINVAL;
  memset(&message, 0, sizeof message);
  memset(&control, 0, sizeof control);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
#if defined(__linux__)
  // One more than allowed, so that a sender cannot make this process open many; CMSG_SPACE would round up. Linux does not
  // create what does not fit.
  message.msg_controllen = CMSG_LEN(sizeof(int) * (descriptors_max + 1));
#else
  // Darwin creates what does not fit and loses the numbers: leave room for everything.
  message.msg_controllen = sizeof control.bytes;
#endif
  int flags = wait ? 0 : MSG_DONTWAIT;
#if defined(MSG_CMSG_CLOEXEC)
  flags |= MSG_CMSG_CLOEXEC;
#endif
  ssize_t received = recvmsg(fd, &message, flags);
  if (received < 0) return -errno;

  size_t total = 0;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    size_t size = header->cmsg_len - CMSG_LEN(0);
    for (size_t offset = 0; offset + sizeof(int) <= size; offset += sizeof(int)) {
      int descriptor;
      memcpy(&descriptor, CMSG_DATA(header) + offset, sizeof descriptor);
#if !defined(MSG_CMSG_CLOEXEC)
      fcntl(descriptor, F_SETFD, FD_CLOEXEC);
#endif
      if (total < descriptors_max) descriptors[total] = descriptor;
      else close(descriptor);
      total++;
    }
  }
  *descriptor_count = total;
  *truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  if (total > descriptors_max || *truncated) close_all(descriptors, total < descriptors_max ? total : descriptors_max);
  return received;
}

#if defined(F_ADD_SEALS) && defined(MFD_ALLOW_SEALING)
#define FIXED_LENGTH (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int cposix_shared_memory(int64_t count) {
  int fd = memfd_create("opendynamics", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return errno == ENOSYS ? -ENOTSUP : -errno;
  // With its pages: where the system promises no more than it has, a write to a page that it cannot give would end the process.
  if (ftruncate(fd, count) == 0 && fallocate(fd, 0, 0, count) == 0 &&
      fcntl(fd, F_ADD_SEALS, FIXED_LENGTH) == 0)
    return fd;
  int status = -errno;
  close(fd);
  return status;
}

int cposix_is_shared_memory(int fd, int64_t count) {
  struct stat status;
  // Files of other kinds have no seals, so that reading this one waits for nobody.
  int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
  if (seals < 0 || (seals & FIXED_LENGTH) != FIXED_LENGTH) return 0;
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) return 0;
  return fstat(fd, &status) == 0 && status.st_size == count;
}
#else
int cposix_shared_memory(int64_t count) {
  (void)count;
  return -ENOTSUP;
}

int cposix_is_shared_memory(int fd, int64_t count) {
  (void)fd;
  (void)count;
  return 0;
}
#endif

int cposix_descriptor_limit(uint64_t *soft, uint64_t *hard) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return -errno;
  *soft = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  *hard = limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
#if defined(__APPLE__)
  if (*hard > OPEN_MAX) *hard = OPEN_MAX;  // setrlimit(2) refuses a soft limit above it
#endif
  return 0;
}

int cposix_set_soft_descriptor_limit(uint64_t soft) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return -errno;
  limit.rlim_cur = soft == UINT64_MAX ? RLIM_INFINITY : (rlim_t)soft;
  return result(setrlimit(RLIMIT_NOFILE, &limit));
}

int cposix_open_wakeup(int *reading, int *writing) {
#if defined(__linux__)
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return -errno;
  *reading = *writing = fd;
#else
  int ends[2];
  if (pipe(ends) < 0) return -errno;
  for (int i = 0; i < 2; i++) {
    if (fcntl(ends[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[i], F_SETFL, O_NONBLOCK) < 0) {
      int error = errno;
      close_all(ends, 2);
      return -error;
    }
  }
  *reading = ends[0];
  *writing = ends[1];
#endif
  return 0;
}

// A failure means that it is readable already.
void cposix_wake(int writing) {
  uint64_t one = 1;
  ssize_t count;
  do count = write(writing, &one, sizeof one);
  while (count < 0 && errno == EINTR);
}

void cposix_clear_wakeup(int reading) {
  uint64_t words[16];
  ssize_t count;
  do count = read(reading, words, sizeof words);
  while (count == (ssize_t)sizeof words || (count < 0 && errno == EINTR));
}

int cposix_wait(int fd, int writing, int wakeup, int milliseconds) {
  struct pollfd entries[2] = {
      {.fd = fd, .events = (short)(POLLIN | (writing ? POLLOUT : 0))},
      {.fd = wakeup, .events = POLLIN},
  };
  int count = poll(entries, 2, milliseconds);
  if (count < 0) return errno == EINTR ? 4 : -errno;
  short ended = POLLERR | POLLHUP | POLLNVAL;
  return (entries[0].revents & (POLLIN | ended) ? 1 : 0) | (entries[0].revents & (POLLOUT | ended) ? 2 : 0) |
         (entries[1].revents ? 4 : 0);
}
