// Starting programs, and what others may see of this one: the flags are hidden from Swift by Glibc's headers.
#define _GNU_SOURCE
#include "CPosix.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

extern char **environ;

int cposix_spawn_detached(pid_t *process, char *const arguments[], char *const environment[]) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    int status = posix_spawn_file_actions_init(&actions);
    if (status) return -status;
    status = posix_spawnattr_init(&attributes);
    if (status) {
        posix_spawn_file_actions_destroy(&actions);
        return -status;
    }
    for (int fd = 0; fd < 3 && !status; fd++)
        status = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
    sigfillset(&all);
    sigemptyset(&none);
    short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID;
#ifdef __APPLE__
    flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#elif defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
    if (!status) status = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
#endif
    if (!status) status = posix_spawnattr_setsigdefault(&attributes, &all);
    if (!status) status = posix_spawnattr_setsigmask(&attributes, &none);
    if (!status) status = posix_spawnattr_setflags(&attributes, flags);
    if (!status)
        status = posix_spawn(
            process, arguments[0], &actions, &attributes, arguments, environment ? environment : environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -status;
}

int cposix_make_undumpable(void) {
#ifdef __linux__
    return prctl(PR_SET_DUMPABLE, 0L, 0L, 0L, 0L) < 0 ? -errno : 0;
#else
    return 0;
#endif
}

int cposix_await_exit(pid_t process) {
    siginfo_t information;
    while (waitid(P_PID, (id_t)process, &information, WEXITED | WNOWAIT) != 0)
        if (errno != EINTR) return -errno;
    return information.si_code == CLD_EXITED && information.si_status == 0 ? 0 : 1;
}
