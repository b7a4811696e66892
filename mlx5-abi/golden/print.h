/* How the programs beside this file, and that of uverbs/golden, print what a compiler makes of a header, one line a fact:
 *
 *     struct NAME BYTES
 *     field NAME.MEMBER OFFSET BYTES
 *     const NAME VALUE
 *
 * What to print is in names.h: for the programs here `cargo xtask golden` writes it from the names in the golden file,
 * uverbs/golden has one of its own.
 */
#include <stddef.h>
#include <stdio.h>

#ifndef TYPE
#define TYPE(name) struct name
#endif

#define STRUCT(name) printf("struct " #name " %zu\n", sizeof(TYPE(name)));
#define SIZE(name, member) sizeof(((TYPE(name) *)0)->member)
#define FIELD(name, member) printf("field " #name "." #member " %zu %zu\n", offsetof(TYPE(name), member), SIZE(name, member));
#define SPAN(name, first, last)                                                                                        \
	printf("field " #name "." #first ".." #last " %zu %zu\n", offsetof(TYPE(name), first),                         \
	       offsetof(TYPE(name), last) + SIZE(name, last) - offsetof(TYPE(name), first));
#define CONST(name) printf("const " #name " %#llx\n", (unsigned long long)(name));

int main(void)
{
#include "names.h"
	return 0;
}
