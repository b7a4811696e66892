/* What mlx5_prm.h of DPDK's source says of fields that Linux's header leaves out. As there, offsets and sizes are in bits. */
#include <stdint.h>

typedef uint8_t u8;

/* The length of an array that nothing here asks about; its definition is among the code that is left out. */
#define MAX_ACTIONS_DATA_IN_HEADER_MODIFY 1

#include "prm.h"

#define TYPE(name) struct mlx5_ifc_##name##_bits
#include "print.h"
