/* What entry.c has for exports.go. */
#include <stdint.h>

void golib_keep_error(const char *text, int64_t length);
int golib_handles_faults(void);
