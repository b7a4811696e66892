/* What mlx5_ifc.h of Linux's source says. It declares a byte for each bit, so offsets and sizes are in bits here. */
#include <stdint.h>

typedef uint8_t u8;
#define BIT(bit) (1ul << (bit))
#define BIT_ULL(bit) (1ull << (bit))

#include <linux/mlx5/mlx5_ifc.h>

#define TYPE(name) struct mlx5_ifc_##name##_bits
#include "print.h"
