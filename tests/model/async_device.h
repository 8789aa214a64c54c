/* "test-async": a device for tests that behaves as one beside the host does, and breaks whoever relies on more.
 *
 * - Work is queued, and run by a thread of its own after random delays; the two streams take turns at random.
 * - Device addresses cannot be read by the host: they point where no memory can be.
 * - Device memory that was released is full of NaN. Host memory of the device's own is overwritten with NaN once an
 *   upload has read it, and at once where a download is to come.
 * - Host memory handed to a kernel is refused, and so are copies of host memory within a capture.
 * - Kernels are the CPU's, so that a run ends in the same bytes.
 *
 * It is there in every program that links this file; "auto" opens it where the environment's UPS_TEST_DEVICE names it,
 * and any other device that UPS_TEST_DEVICE names: what runs on a card must not fall back to the processor unseen.
 * UPS_TEST_INPUT_SETS: 1 or 2 (default) sets of inputs of a step; UPS_TEST_CAPTURE=0: it has no capture;
 * UPS_TEST_DELAY: microseconds of a delay at most (default 100); UPS_TEST_SEED: of the delays. */
#ifndef UPS_TESTS_MODEL_ASYNC_DEVICE_H
#define UPS_TESTS_MODEL_ASYNC_DEVICE_H

#include "model/device.h"
#include "model/devices/devices.h"

extern const ups_device_entry ups_async_device;

#endif
