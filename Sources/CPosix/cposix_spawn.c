// Starting programs, and what others may see of this one: the flags are hidden from Swift by Glibc's headers.
#define _GNU_SOURCE
#include "CPosix.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/resource.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/xattr.h>
#endif

extern char **environ;

int cposix_has_access_list(const char *path) {
#ifdef __linux__
    return getxattr(path, "system.posix_acl_access", NULL, 0) > 0;
#else
    return 0;
#endif
}

// Output and error output: /dev/null instead of an output of -1, which comes with a session of its own.
static int spawn(pid_t *process, int output, char *const arguments[], char *const environment[]) {
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
    status = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (output >= 0) {
        if (!status) status = posix_spawn_file_actions_adddup2(&actions, output, 1);
#ifdef __APPLE__
        if (!status) status = posix_spawn_file_actions_addinherit_np(&actions, 2);
#endif
    } else
        for (int fd = 1; fd < 3 && !status; fd++)
            status = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    sigfillset(&all);
    sigemptyset(&none);
    short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | (output < 0 ? POSIX_SPAWN_SETSID : 0);
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

int cposix_spawn_detached(pid_t *process, char *const arguments[], char *const environment[]) {
    return spawn(process, -1, arguments, environment);
}

int cposix_spawn_printing(pid_t *process, int output, char *const arguments[], char *const environment[]) {
    return spawn(process, output, arguments, environment);
}

char **cposix_environment(void) { return environ; }

int cposix_set_dumpable(int on) {
#ifdef __linux__
    return prctl(PR_SET_DUMPABLE, on ? 1L : 0L, 0L, 0L, 0L) < 0 ? -errno : 0;
#else
    (void)on;
    return 0;
#endif
}

void cposix_limit_arenas(void) {
#ifdef __GLIBC__
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    mallopt(M_ARENA_MAX, count < 2 ? 2 : count > 64 ? 64 : (int)count);
#endif
}

void cposix_crash_silently(void) {
    static const int crashes[] = {SIGQUIT, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    // Swift's runtime has taken them before the first line of the program.
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) signal(crashes[i], SIG_DFL);
    // One byte: what the system hands dumps to takes no notice of a limit of none.
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) < 0) return;
    if (limit.rlim_cur > 1) limit.rlim_cur = 1;
    setrlimit(RLIMIT_CORE, &limit);
}

int cposix_await_exit(pid_t process) {
    siginfo_t information;
    while (waitid(P_PID, (id_t)process, &information, WEXITED | WNOWAIT) != 0)
        if (errno != EINTR) return -errno;
    return information.si_code == CLD_EXITED && information.si_status == 0 ? 0 : 1;
}
