/* What this machine can do for UPS, and what would make it do more: the findings of `ups doctor`. */
#ifndef UPS_TOOLS_MACHINE_H
#define UPS_TOOLS_MACHINE_H

typedef enum ups_finding_level {
    UPS_FINDING_OK,
    UPS_FINDING_NOTE,   /* works, but slower or with less than it could */
    UPS_FINDING_PROBLEM /* UPS will fail or give up here */
} ups_finding_level;

typedef struct ups_finding {
    const char *group; /* "Processor", "Storage", … */
    const char *topic; /* "io_uring" */
    ups_finding_level level;
    char text[240];   /* what was found */
    char remedy[320]; /* what to change; "" when there is nothing */
} ups_finding;

enum { UPS_FINDINGS_MAXIMUM = 32 };
typedef struct ups_findings {
    ups_finding items[UPS_FINDINGS_MAXIMUM];
    int count;
} ups_findings;

/* Looks at everything; `directory` is where data and runs are kept. Sets nothing up that outlasts the call, but asks
 * the kernel for the right to use AMX, which the process then has. */
void ups_machine_examine(const char *directory, ups_findings *findings);

const char *ups_finding_level_name(ups_finding_level level); /* "ok", "note", "problem" */

#endif
