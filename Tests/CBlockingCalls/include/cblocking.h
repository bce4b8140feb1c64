#pragma once

/// Called with the name of a system call before a thread of this process makes it.
typedef void (*cblocking_observer)(const char *name);

/// Sets the observer of all threads. Returns 0, or -1 where calls cannot be observed.
int cblocking_observe(cblocking_observer observer);
