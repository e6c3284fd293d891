/* A stand-in for IOKit and the system management controller behind it, so that the real calls run on any machine.
 *
 * The state lies in the file that FAKE_SMC names, shared by all processes that load this and kept when they are killed.
 * It behaves as a generation of Apple silicon does: who may write, how a fan is unlocked, how long the system takes to
 * take over; and on demand it refuses, fails, or says yes and does nothing. `support/fake_smc.py` has the same layout.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FANS 4
enum { M1 = 1, M3 = 3, M4 = 4, M5 = 5 };
enum { OK = 0, BAD_COMMAND = 0x82, NOT_FOUND = 0x84, NOT_WRITABLE = 0x86, WRONG_SIZE = 0x87 };
enum { READ = 5, WRITE = 6, INFO = 9 };
#define NOT_PRIVILEGED 0xe00002c1u
#define BAD_ARGUMENT 0xe00002c2u
#define IO_ERROR 0xe00002cau
#define CONNECTION 0x5c0u
#define SERVICE 0x5e1u

struct fan { float actual, target, min, max; uint32_t mode, pad; };

struct state {
  uint32_t magic, generation, fans, ftst;
  uint32_t unlock_ms, handback_ms; /* from Ftst = 1 until modes are taken; from Ftst = 0 until the system has them */
  uint32_t refuse_percent, lie_percent, fail_percent, seed;
  uint32_t fail_reads;   /* so many calls that fail from now on */
  uint32_t root_only;
  uint32_t writes, manual_writes; /* counted: all that arrive, those that would take a fan */
  uint64_t unlocked_ns, relocked_ns;
  struct fan fan[FANS];
};

struct key_data {
  uint32_t key;
  struct { uint8_t major, minor, build, reserved; uint16_t release; } version;
  struct { uint16_t version, length; uint32_t cpu, gpu, memory; } limits;
  struct { uint32_t size, type; uint8_t attributes; } info;
  uint8_t result, status, data8;
  uint32_t data32;
  uint8_t bytes[32];
};

_Static_assert(sizeof(struct key_data) == 80, "the controller's structure has 80 bytes");

uint32_t mach_task_self_ = 0x103;

static struct state *state;
static int file = -1;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int attach(void) {
  const char *path = getenv("FAKE_SMC");
  if (state) return 1;
  if (!path || (file = open(path, O_RDWR | O_CLOEXEC)) < 0) return 0;
  void *mapped = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return 0;
  state = mapped;
  return 1;
}

static int draw(uint32_t percent) {
  if (!percent) return 0;
  state->seed = state->seed * 1664525u + 1013904223u;
  return (state->seed >> 8) % 100 < percent;
}

static uint32_t name(const char *text) {
  return (uint32_t)text[0] << 24 | (uint32_t)text[1] << 16 | (uint32_t)text[2] << 8 | (uint32_t)text[3];
}

/* Which fan and which part a key names: 1 for a key of a fan. */
static int fan_key(uint32_t key, struct fan **fan, uint16_t *part) {
  uint32_t number = (key >> 16 & 0xff) - '0';
  if (key >> 24 != 'F' || number >= state->fans) return 0;
  *fan = &state->fan[number];
  *part = key & 0xffff;
  return 1;
}

#define PART(a, b) ((a) << 8 | (b))

static uint16_t mode_part(void) { return state->generation == M5 ? PART('m', 'd') : PART('M', 'd'); }

static float *speed(struct fan *fan, uint16_t part) {
  switch (part) {
    case PART('A', 'c'): return &fan->actual;
    case PART('T', 'g'): return &fan->target;
    case PART('M', 'n'): return &fan->min;
    case PART('M', 'x'): return &fan->max;
    default: return NULL;
  }
}

static int has_unlock(void) { return state->generation != M5 && state->generation != M1; }

/* The system's own thermal daemon: it takes over some time after the unlock is off, and keeps what is its own. */
static void system_acts(void) {
  for (uint32_t at = 0; at < state->fans; at++) {
    struct fan *fan = &state->fan[at];
    if (has_unlock() && !state->ftst && state->relocked_ns &&
        now_ns() - state->relocked_ns >= state->handback_ms * 1000000ull)
      fan->mode = 3;
    if (fan->mode != 1) fan->target = fan->min;
    fan->actual = fan->target;
  }
}

static int describe(uint32_t key, uint32_t *size, uint32_t *type) {
  struct fan *fan;
  uint16_t part;
  *size = 1, *type = name("ui8 ");
  if (key == name("FNum")) return 1;
  if (key == name("Ftst")) return has_unlock();
  if (!fan_key(key, &fan, &part)) return 0;
  if (part == mode_part()) return 1;
  *size = 4, *type = name("flt ");
  return speed(fan, part) != NULL;
}

static uint8_t read_value(uint32_t key, uint8_t *bytes) {
  struct fan *fan;
  uint16_t part;
  if (key == name("FNum")) bytes[0] = (uint8_t)state->fans;
  else if (key == name("Ftst")) bytes[0] = (uint8_t)state->ftst;
  else if (fan_key(key, &fan, &part)) {
    if (part == mode_part()) bytes[0] = (uint8_t)fan->mode;
    else memcpy(bytes, speed(fan, part), 4);
  }
  return OK;
}

static uint8_t set_mode(struct fan *fan, uint8_t mode) {
  if (mode != 1) {
    fan->mode = mode;
    return OK;
  }
  state->manual_writes++;
  if (has_unlock() && (!state->ftst || now_ns() - state->unlocked_ns < state->unlock_ms * 1000000ull))
    return state->generation == M4 ? OK : BAD_COMMAND; /* the M4 swallows it */
  fan->mode = 1;
  return OK;
}

static uint8_t set_target(struct fan *fan, const uint8_t *bytes) {
  float rpm;
  memcpy(&rpm, bytes, 4);
  if (fan->mode != 1) return OK; /* the system overrules it at once */
  if (state->generation == M5 && rpm < fan->min) rpm = fan->min;
  fan->target = rpm;
  return OK;
}

static uint8_t write_value(uint32_t key, const uint8_t *bytes) {
  struct fan *fan;
  uint16_t part;
  state->writes++;
  if (draw(state->refuse_percent)) return NOT_WRITABLE;
  if (draw(state->lie_percent)) return OK;
  if (key == name("Ftst")) {
    if (bytes[0] && !state->ftst) state->unlocked_ns = now_ns();
    if (!bytes[0] && state->ftst) state->relocked_ns = now_ns();
    if (bytes[0]) state->relocked_ns = 0;
    state->ftst = bytes[0];
    return OK;
  }
  if (!fan_key(key, &fan, &part)) return NOT_WRITABLE;
  if (part == mode_part()) return set_mode(fan, bytes[0]);
  if (part == PART('T', 'g')) return set_target(fan, bytes);
  return NOT_WRITABLE;
}

static uint8_t answer(const struct key_data *in, struct key_data *out) {
  uint32_t size, type;
  if (!describe(in->key, &size, &type)) return NOT_FOUND;
  if (in->data8 == INFO) {
    out->info.size = size, out->info.type = type;
    return OK;
  }
  if (in->info.size != size) return WRONG_SIZE;
  out->info.size = size;
  if (in->data8 == READ) return read_value(in->key, out->bytes);
  if (in->data8 == WRITE) return write_value(in->key, in->bytes);
  return BAD_COMMAND;
}

void *IOServiceMatching(const char *class_name) { return strdup(class_name); }

uint32_t IOServiceGetMatchingService(uint32_t port, void *matching) {
  const char *wanted = getenv("FAKE_SMC_SERVICE");
  int found = port == 0 && matching && !strcmp(matching, wanted ? wanted : "AppleSMCKeysEndpoint") && attach();
  free(matching); /* consumed, as the real call does */
  return found ? SERVICE : 0;
}

uint32_t IOServiceOpen(uint32_t service, uint32_t task, uint32_t type, uint32_t *connection) {
  if (service != SERVICE || task != mach_task_self_ || type != 0) return BAD_ARGUMENT;
  *connection = CONNECTION;
  return 0;
}

uint32_t IOServiceClose(uint32_t connection) { return connection == CONNECTION ? 0 : BAD_ARGUMENT; }

uint32_t IOObjectRelease(uint32_t object) { return object == SERVICE ? 0 : BAD_ARGUMENT; }

uint32_t IOConnectCallStructMethod(uint32_t connection, uint32_t selector, const void *in, size_t in_size, void *out,
                                   size_t *out_size) {
  if (connection != CONNECTION || selector != 2 || in_size != 80 || *out_size != 80) return BAD_ARGUMENT;
  const struct key_data *asked = in;
  struct key_data *given = out;
  memset(given, 0, sizeof *given);
  flock(file, LOCK_EX);
  uint32_t code = 0;
  if (state->fail_reads && asked->data8 == READ) state->fail_reads--, code = IO_ERROR;
  else if (draw(state->fail_percent)) code = IO_ERROR;
  else if (state->root_only && asked->data8 == WRITE && geteuid() != 0) code = NOT_PRIVILEGED;
  else {
    system_acts();
    given->key = asked->key;
    given->result = answer(asked, given);
    system_acts();
  }
  flock(file, LOCK_UN);
  return code;
}
