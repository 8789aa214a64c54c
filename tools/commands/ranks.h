/* `ups train` in the processes that a launcher started: rank 0 runs the command as a process by itself does, and alone
 * prints; the others follow it (train/stages/follow.h). */
#ifndef UPS_TOOLS_COMMANDS_RANKS_H
#define UPS_TOOLS_COMMANDS_RANKS_H

#include "tools/command.h"
#include "train/comm/comm.h"

/* Whether this is one of several processes, and not rank 0: what all find in the same line, or one of them can answer,
 * it leaves to that. Known before they find each other. */
bool ups_ranks_follows(void);

/* What rank 0 does; `comm` is NULL where this process is by itself. Returns the exit code. */
typedef int ups_ranks_lead(void *context, ups_comm *comm);

/* Has rank 0 `lead` while the others follow, and returns the exit code. Whoever fails by itself ends all. With --json
 * that is told in one document: by `lead`, or for another rank, by the communicator's thread while `lead` is at work.
 */
int ups_ranks_run(const ups_arguments *arguments, ups_ranks_lead *lead, void *context);

/* What `lead` calls before it prints a result, or why it fails: from then on no other rank's failure is told. Where one
 * is being told, it does not return: that ends all. */
void ups_ranks_speak(void);

#endif
