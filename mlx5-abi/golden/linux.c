/* What device.h, qp.h and cq.h of Linux's source say, and the enums of driver.h, port.h and fs.h beside them. These
 * headers are the kernel's own and do not compile here as they are: `cargo xtask golden` cuts their types and plain
 * numbers out into types.h, and this is as much of the kernel as those need. */
#include <stdint.h>
#include <linux/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define __packed __attribute__((packed))
#define BIT(bit) (1ul << (bit))
#define BIT_ULL(bit) (1ull << (bit))
#define PAGE_SIZE 4096
#define DECLARE_FLEX_ARRAY(type, name) type name[0]
#define struct_group(name, ...) union { struct { __VA_ARGS__ }; struct { __VA_ARGS__ } name; }
#define MLX5_ST_SZ_BYTES(name) (sizeof(struct mlx5_ifc_##name##_bits) / 8)

typedef int refcount_t;
struct completion { int unused; };
struct list_head { struct list_head *next, *prev; };
struct ib_grh { u8 bytes[40]; };
struct ib_ah { int unused; };
struct mlx5_core_rsc_common { int unused; };

#include <linux/mlx5/mlx5_ifc.h>
#include "types.h"

#include "print.h"
