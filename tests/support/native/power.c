/* Stands in for IOKit and CoreFoundation: power assertions as macOS makes them, counted, and refused on demand. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int made, released, texts, refuse;
static char kind[64], name[64];

void *CFStringCreateWithCString(const void *allocator, const char *text, uint32_t encoding) {
    if (allocator || encoding != 0x08000100) return NULL;
    texts++;
    return strdup(text);
}
void CFRelease(void *text) { texts--; free(text); }

int32_t IOPMAssertionCreateWithName(const char *type, uint32_t level, const char *why, uint32_t *id) {
    if (refuse || level != 255) return (int32_t)0xe00002c1;
    strncpy(kind, type, sizeof kind - 1);
    strncpy(name, why, sizeof name - 1);
    *id = 0x80000000u + ++made;
    return 0;
}
int32_t IOPMAssertionRelease(uint32_t id) {
    if (id != 0x80000000u + made || made == released) return (int32_t)0xe00002c2;
    released++;
    return 0;
}

void stand_in_refuse(int yes) { refuse = yes; }
int stand_in_held(void) { return made - released; }
int stand_in_texts(void) { return texts; }
const char *stand_in_kind(void) { return kind; }
const char *stand_in_name(void) { return name; }
