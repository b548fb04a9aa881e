/* What entry.c has for exports.go. */
#include <stdint.h>

void golib_keep_error(const char *text, int64_t length);
void golib_restore_limit(void);
int golib_handles_faults(void);
