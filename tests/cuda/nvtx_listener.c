/* A profiler that NVTX loads where NVTX_INJECTION64_PATH names it: writes a line a range into $UPS_TEST_RANGES, with as
 * many dots before its name as ranges are open around it. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find);

static FILE *to;
static _Thread_local int depth; /* ranges are a thread's */

static int push(const char *name) {
    if (to) {
        flockfile(to);
        for (int i = 0; i < depth; i++) fputc('.', to);
        fprintf(to, "%s\n", name);
        fflush(to);
        funlockfile(to);
    }
    return depth++;
}

static int pop(void) {
    if (--depth < 0) abort();
    return depth;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find) {
    const NvtxExportTableCallbacks *callbacks = find(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable functions;
    unsigned size;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size)) return 0;
    *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    const char *path = getenv("UPS_TEST_RANGES");
    if (path) to = fopen(path, "w");
    return 1;
}
