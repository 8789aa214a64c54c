/* For the wheel (tools/archives.cmake). Built on Debian 12, all but two functions of its programs are in the C
 * library 2.34, that of RHEL 9; Ubuntu 22.04 has 2.35. These two the linker takes from here (--wrap). */
#include <stddef.h>
#include <sys/random.h>
#include <sys/types.h>

double __wrap_hypot(double x, double y);
void __wrap_arc4random_buf(void *bytes, size_t count);

#ifdef __x86_64__ /* its first version; that of 2.35 leaves errno alone */
__asm__(".symver first_hypot, hypot@GLIBC_2.2.5");
#else
__asm__(".symver first_hypot, hypot@GLIBC_2.17");
#endif
extern double first_hypot(double x, double y);

double __wrap_hypot(double x, double y) {
    return first_hypot(x, y);
}

/* By which expat seeds its hash tables. */
void __wrap_arc4random_buf(void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        const ssize_t got = getrandom((char *)bytes + done, count - done, 0);
        if (got > 0) done += (size_t)got;
    }
}
