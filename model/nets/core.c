#include "model/nets/core.h"

#include <string.h>

const ups_core_class *const ups_cores[] = {&ups_core_stack, &ups_core_spectral, NULL};

const ups_core_class *ups_core_find(const char *name) {
    if (!name) return ups_cores[0];
    for (int i = 0; ups_cores[i]; i++) {
        if (strcmp(name, ups_cores[i]->name) == 0) return ups_cores[i];
    }
    return NULL;
}
