/* A stand-in for the Objective-C runtime and Foundation: one class, one object, two messages. FAKE_THERMAL_STATE is
 * what the object answers. */
#include <stdlib.h>
#include <string.h>

static char class_object, info_object;

void *objc_getClass(const char *name) { return strcmp(name, "NSProcessInfo") ? NULL : &class_object; }

void *sel_registerName(const char *name) {
  static char process_info, thermal_state, other;
  if (!strcmp(name, "processInfo")) return &process_info;
  return strcmp(name, "thermalState") ? &other : &thermal_state;
}

void *objc_msgSend(void *target, void *selector) {
  const char *state = getenv("FAKE_THERMAL_STATE");
  if (target == &class_object && selector == sel_registerName("processInfo")) return state ? &info_object : NULL;
  if (target == &info_object && selector == sel_registerName("thermalState")) return (void *)atol(state);
  return NULL;
}
