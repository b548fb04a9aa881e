/* What entry.c has for exports.go. */
#include <stdint.h>

void golib_keep_error(const char *text, int64_t length);
void golib_remember_handlers(void);
int golib_handlers_replaced(void);
