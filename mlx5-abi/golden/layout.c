/* What the headers for user space say: rdma/mlx5-abi.h and its neighbours (linux-libc-dev), infiniband/mlx5dv.h
 * (libibverbs-dev). */
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "print.h"
