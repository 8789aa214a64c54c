/* What bochscpu-python 0.4.0 wants of a C library later than Debian 12's, for LD_PRELOAD. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

unsigned long __isoc23_strtoul(const char *text, char **end, int base);
unsigned long long __isoc23_strtoull(const char *text, char **end, int base);
int __isoc23_sscanf(const char *text, const char *format, ...);

unsigned long __isoc23_strtoul(const char *text, char **end, int base) {
    return strtoul(text, end, base);
}

unsigned long long __isoc23_strtoull(const char *text, char **end, int base) {
    return strtoull(text, end, base);
}

int __isoc23_sscanf(const char *text, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int count = vsscanf(text, format, values);
    va_end(values);
    return count;
}
