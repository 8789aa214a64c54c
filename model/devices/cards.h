/* Cards by their data sheets, and the arithmetic of training that is held against them.
 *
 * MFU, model FLOPs utilisation (Chowdhery et al., arXiv 2204.02311, appendix B), is the share of a card's peak that
 * goes into what the model asks for: matrix products and convolutions of forward and backward, once each. What is
 * computed again, by activation checkpointing or for the scores of attention, is no part of it, as it is of HFU; nor is
 * the optimizer, or what is done once an element. */
#ifndef UPS_MODEL_DEVICES_CARDS_H
#define UPS_MODEL_DEVICES_CARDS_H

#include "model/work.h"

/* Dense peaks in FLOP/s, bandwidth in bytes/s. */
typedef struct ups_card {
    const char *name, *sheet;
    const char *driver;                        /* how the name ends that the driver tells */
    double fp8, half, tf32, single, bandwidth; /* half: of bf16 and fp16; fp8 0: the card has none */
} ups_card;

extern const char *const ups_card_names[];            /* ended by NULL */
const ups_card *ups_card_at(int index);               /* in the order of the names */
const ups_card *ups_card_of_driver(const char *name); /* NULL: none of these, or no name */

/* FLOP/s of the products of a node, whose work is `work`: in the precision that the graph gives them, or, where the
 * card has no FP8, in that which they have then. */
double ups_card_peak(const ups_card *card, const ups_graph *graph, const ups_node *node, const ups_work *work);

typedef struct ups_arithmetic {
    double flops;
    double at_peak; /* seconds that they take at the card's peaks; 0 without a card */
} ups_arithmetic;

/* What MFU counts of one forward and backward of a differentiated graph. `card` may be NULL. */
ups_arithmetic ups_arithmetic_of(const ups_graph *graph, const ups_plan *plan, const ups_card *card);

#endif
