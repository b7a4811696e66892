/*
 * What a program that mlx5-run started may ask of its devices beyond what a kernel answers.
 *
 * The functions are in the library that mlx5-run loads, and nowhere else: a program that shall also run without it declares them
 * weak, or looks them up by dlsym(RTLD_DEFAULT, ...). All may be called from any thread, and say what is wrong by errno.
 */
#ifndef MLX5_RUN_H
#define MLX5_RUN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLX5_RUN_FUNCTION __attribute__((weak))

/*
 * Lets the devices of this process, or of the daemon that it is attached to, work until there is nothing left to do, in the caller's thread: under `mlx5-run --stepped` nothing
 * happens otherwise, so that what a driver costs can be told from what its device does.
 *
 * How many steps had something to do; -1 with EPERM without --stepped, with EDEADLK where there is work without end.
 */
MLX5_RUN_FUNCTION int mlx5_run_step(void);

/*
 * Takes the free end of a wire `cable:NAME`, as another device on it would.
 *
 * A number for the calls below; -1 with EBUSY where both ends are taken, EINVAL for a name that is none. It lasts as long as the process,
 * and its forked children may use it.
 */
MLX5_RUN_FUNCTION int mlx5_run_plug(const char *name);

/* Sends a frame without its FCS from an end. 0; -1 with EAGAIN where the wire is full, ENETDOWN where nobody is at the other end. */
MLX5_RUN_FUNCTION int mlx5_run_send(int end, const void *frame, size_t bytes);

/* Takes the next frame that came to an end, cut to the room. Its bytes; -1 with EAGAIN where there is none. */
MLX5_RUN_FUNCTION ssize_t mlx5_run_receive(int end, void *room, size_t bytes);

/*
 * The bytes that a device and its driver have made PCIe carry so far, with what the bus adds: to the device, and from it.
 *
 * 0; -1 with ENODEV for a device that the process has not opened; a daemon's are always there.
 */
MLX5_RUN_FUNCTION int mlx5_run_bus_bytes(unsigned device, uint64_t bytes[2]);

#ifdef __cplusplus
}
#endif

#endif
