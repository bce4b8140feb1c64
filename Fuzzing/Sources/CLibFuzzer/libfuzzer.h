#include <stddef.h>
#include <stdint.h>

// libFuzzer's entry for programs with a main of their own; `-sanitize=fuzzer` links it.
int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*one_input)(const uint8_t *data, size_t count));
