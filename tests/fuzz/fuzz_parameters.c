/* What data files say of their equation: the YAML text of a seed group, and numbers in a file's name. */
#include "tests/fuzz/fuzz.h"

#include "pipeline/pde_parameters.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    ups_pde_parameters parameters = {.arena = ups_arena_create(0)};
    FUZZ_CHECK(text && parameters.arena);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    ups_pde_parameters_from_yaml(&parameters, text);
    ups_pde_parameters_from_path(&parameters, text);
    for (int i = 0; i < parameters.count; i++) FUZZ_CHECK(parameters.list[i].name != NULL);
    ups_arena_destroy(parameters.arena);
    free(text);
    return 0;
}
