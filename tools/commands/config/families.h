/* Which data files belong together as a task, and which of them are test data of another task. */
#ifndef UPS_TOOLS_COMMANDS_CONFIG_FAMILIES_H
#define UPS_TOOLS_COMMANDS_CONFIG_FAMILIES_H

#include "base/arena.h"
#include "base/config/document.h"
#include "base/json.h"
#include "pipeline/layouts/mapping.h"
#include "pipeline/source.h"

/* What files say of themselves by a word of their name, or by their folder. */
typedef enum ups_purpose { UPS_FOR_ANYTHING, UPS_FOR_TRAINING, UPS_FOR_VALIDATION, UPS_FOR_TESTS } ups_purpose;

/* Files of one family have layout, fields, grid and frames in common, and a name that differs in numbers alone; files
 * of one trajectory each may differ in their frames. */
typedef struct ups_family {
    ups_purpose purpose;
    const char *stem;   /* the files' name without its numbers, and its directory */
    const char *kind;   /* of the layout */
    const char *fields; /* their names */
    const char *name;   /* of the task */
    ups_sample shape;   /* of its pointers none is kept */
    bool scattered;     /* its points lie anywhere */
    bool own_points;    /* and each sample has its own */
    bool moving;        /* and they move */
    bool single;        /* a trajectory a file */
    int64_t longest;    /* frames, where shape.times are the fewest */
    int64_t samples, segment, patch[UPS_MAX_GRID_DIMS];
    double bytes; /* decoded */
    char **files; /* `file_count` of them, then `test_count` that are test data */
    int file_count, test_count;
    int64_t test_samples;
} ups_family;

typedef struct ups_survey {
    ups_arena *arena; /* of all that families hold */
    ups_family *families;
    int count;
    const ups_mapping *mapping; /* what the files hold; NULL: it is recognised */
    const ups_yaml *layout;     /* the same as it was given */
    const char *from;           /* a model to begin with; NULL: none */
    bool by_folder;             /* files lie in folders for several purposes */
    json_t *told;               /* what it tells of itself (train/config/given.h) */
} ups_survey;

/* Tokens of points that lie anywhere, at most, but where they are more than 64 points each even so; attention over all
 * of them costs the square. */
enum { UPS_MOST_OWN_LEAVES = 1024, UPS_MOST_SHARED_LEAVES = 512 };

/* Opens `count` files, whose paths have to live as long as the survey, and makes families of them, with names, patches
 * and segments. A family whose name or folder says "test", and which is as one of the others, becomes that one's test
 * data. UPS_ERR_FORMAT: what is no data, or has one frame. */
ups_status ups_survey_files(ups_survey *survey, char **paths, int count, ups_error *error);

/* Of all families' training data, decoded. */
double ups_survey_bytes(const ups_survey *survey);

#endif
