/* Which of cuBLASLt's algorithms a product takes. The library's first suggestion is a guess, so the fastest of several
 * is found by running them once on the card. It is kept in a file, a line a product of a card, driver and version of
 * the library: later runs take the same one, and give the same bits.
 *
 * The file is $UPS_CUDA_CHOICES, else cublaslt.txt in ups of the user's cache ($XDG_CACHE_HOME, ~/.cache). Where
 * UPS_CUDA_CHOICES is empty nothing is run, and the first suggestion is taken. Several processes may add lines; of two
 * lines of a product the first counts, for those who had found another one, too. What is not a whole line is passed
 * over. Whether a product makes sums as well has a line of its own, whose algorithm is all zeros where it does not.
 * What contests found (contest.h) has lines of the same form. */
#ifndef UPS_MODEL_CUDA_PRODUCTS_CHOICES_H
#define UPS_MODEL_CUDA_PRODUCTS_CHOICES_H

#include <cublasLt.h>
#include <stdbool.h>

enum { UPS_CUDA_CHOICE_KEY = 384 /* bytes of a product's name, which has no blanks, with its NUL */ };

typedef struct ups_cuda_choices ups_cuda_choices;

/* NULL: the first suggestion is to be taken, or there is no memory for choices. */
ups_cuda_choices *ups_cuda_choices_open(const char *card, int driver, size_t library);
void ups_cuda_choices_close(ups_cuda_choices *choices); /* NULL is fine */

bool ups_cuda_choices_find(const ups_cuda_choices *choices, const char *key, cublasLtMatmulAlgo_t *algorithm);
/* In the file, too, where it can be written; where not, other runs find out anew, and may find another one. *algorithm
 * becomes what another process has added meanwhile. */
void ups_cuda_choices_add(ups_cuda_choices *choices, const char *key, cublasLtMatmulAlgo_t *algorithm);

#endif
