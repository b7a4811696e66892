/* The layouts and numbers of the RDMA ABI as the C compiler sees them in the kernel's headers (linux-libc-dev). Beside what
 * print.h prints:
 *
 *     method OBJECT METHOD NAME
 *     attribute OBJECT METHOD ATTRIBUTE NAME
 *     command NUMBER NAME
 *     value NAME NUMBER
 *
 * `cargo xtask golden` compiles and runs it.
 */
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define METHOD(name, object, method) printf("method %d %d %s\n", object, method, name);
#define ATTRIBUTE(name, object, method, attribute) printf("attribute %d %d %d %s\n", object, method, attribute, name);
#define COMMAND(name) printf("command %u %s\n", (unsigned)IB_USER_VERBS_CMD_##name, #name);
#define EXTENDED(name)                                                                                                 \
	printf("command %u EX_%s\n", IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##name, #name);
#define VALUE(name) printf("value %s %llu\n", #name, (unsigned long long)(name));
/* A member of a structure within, under a name of its own. */
#define FIELD_AS(name, field, member)                                                                                  \
	printf("field " #name "." #field " %zu %zu\n", offsetof(TYPE(name), member), SIZE(name, member));

#include "print.h"
