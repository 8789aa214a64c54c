/* An open source of members, as reading.c and create.c (making it) share it. */
#ifndef UPS_PIPELINE_LAYOUTS_STATE_H
#define UPS_PIPELINE_LAYOUTS_STATE_H

#include "pipeline/layouts/source.h"

typedef struct ups_layout_source {
    ups_source head;
    ups_arena *arena; /* everything below, this struct included */
    const ups_layout *layout;
    const char *left_out;
    ups_layout_member *members;
    int64_t member_count;
    const char *
        *names; /* (members): name of each member's first sample; those of one member lie name_room bytes apart */
    int64_t name_room;
    ups_layout_file *files; /* (file_count) that were opened */
    int64_t file_count;
    ups_shared_chunks **shared; /* (shared_count) of the arrays whose chunks span samples */
    int64_t shared_count;
    uint64_t shared_bytes;  /* at most */
    uint64_t array_scratch; /* of decoding any array; behind it is room for a frame, where points are sorted */
    uint64_t memory_bytes;  /* of arrays that are inflated into memory, once they are read */
} ups_layout_source;

/* Frames of a member's trajectories as they are stored. */
int64_t ups_layout_member_times(const ups_layout_member *member);

/* The stored axis that is number `axis` in the order of ups_layout_part. */
int ups_layout_stored_axis(const ups_layout_part *part, int axis);

/* The slice of a part's array that frames [frames) of sample `index` need, and the first of those frames; false when
 * they need none of it. */
bool ups_layout_part_region(const ups_layout_member *member, const ups_layout_part *part, int64_t index,
                            ups_frames frames, ups_region *region, int64_t *first_frame);

/* Where neighbours along each stored axis of a part's array go, in elements of the sample. */
void ups_layout_part_strides(const ups_layout_member *member, const ups_layout_part *part, int64_t *strides);

#endif
