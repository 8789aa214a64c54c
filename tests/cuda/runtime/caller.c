/* Who called: return addresses, told as FILE:LINE by addr2line of the binutils when a message needs them. */
#include "tests/cuda/runtime/runtime.h"
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>

void emulated_caller_take(emulated_caller *caller) {
    caller->count = backtrace(caller->frames, EMULATED_FRAMES);
}

/* Whether `text` (size) holds the FILE:LINE of the call before an address. */
static bool describe_frame(void *address, char *text, size_t size) {
    Dl_info info;
    char command[1200];
    if (!dladdr(address, &info) || !info.dli_fname) return false;
    const Elf64_Ehdr *header = info.dli_fbase;
    uintptr_t base = header->e_type == ET_DYN ? (uintptr_t)info.dli_fbase : 0;
    const char *path = info.dli_fname;
    int length = snprintf(command, sizeof command, "addr2line -e '%s' %#zx 2>/dev/null", path,
                          (size_t)((uintptr_t)address - base - 1));
    if (length < 0 || (size_t)length >= sizeof command) return false;
    FILE *pipe = popen(command, "r");
    if (!pipe) return false;
    bool found = fgets(text, (int)size, pipe) != NULL;
    pclose(pipe);
    text[found ? strcspn(text, "\n ") : 0] = '\0';
    if (!found || text[0] == '?' || strstr(text, ":?") || strstr(text, ":0")) return false;
    static const char *const others[] = {"tests/cuda/runtime/", "tests/cuda/simt/", "include/crt/", "libsanitizer/"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strstr(text, others[i])) return false;
    }
    return true;
}

const char *emulated_caller_describe(const emulated_caller *caller) {
    static char text[1000];
    for (int i = 0; i < caller->count; i++) {
        if (describe_frame(caller->frames[i], text, sizeof text)) return text;
    }
    return "host code without line numbers";
}
