/* Machines whose memory lies at several places (NUMA): a thread that stays beside the memory it fills and reads does
 * not wait for the other place. Memory is given where it is first touched, so that binding a thread before it touches
 * its memory is enough. */
#ifndef UPS_BASE_SYSTEM_NUMA_H
#define UPS_BASE_SYSTEM_NUMA_H

#include <sched.h>

#define UPS_NUMA_MOST_NODES 64

/* Nodes that have processors which this process may run on, as `directory` lists them (/sys/devices/system/node);
 * `nodes` (UPS_NUMA_MOST_NODES) holds these processors of each. 0 where it lists none. */
int ups_numa_nodes(const char *directory, cpu_set_t *nodes);

/* The node of thread `number` of `threads`, so that each node has threads as it has processors; −1, for none, where
 * there is one node, or fewer threads than nodes. */
int ups_numa_node_of(int number, int threads, const cpu_set_t *nodes, int count);

/* Binds the calling thread, one of several that do the same, to that node of this machine. Threads that it starts are
 * bound with it, those made before are not. */
void ups_numa_spread(int number, int threads);

#endif
