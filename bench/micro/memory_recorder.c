/* SPDX-License-Identifier: Apache-2.0
 *
 * Records what a program allocates: LD_PRELOAD it, and name the file in LMN_MEMORY_TRACE.
 *   cc -O2 -shared -fPIC -o recorder.so memory_recorder.c -ldl -lpthread
 *   LMN_MEMORY_TRACE=run.trace LD_PRELOAD=./recorder.so ./program
 * Recorded are malloc and its kin, operator new among them, and anonymous mappings that the program
 * makes itself (not those inside malloc), in the order of all threads together. realloc counts as
 * an allocation and a free; parts of a mapping that are unmapped make it smaller. With
 * LMN_MEMORY_TRACE_ALIGNED set, only what was asked for with an alignment: the tensors of torch.
 *
 * The file: one number an event, as memory.cc reads it. bench/suites/memory.py has the trace that
 * the benchmark replays, and says how it was made.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kEvents = 1 << 24, kSlots = 1 << 22, kMappings = 4096, kBoot = 1 << 20 };

struct event {
  uint64_t bytes;  /* of an allocation; 0: a free */
  uint64_t number; /* of an allocation, from 0 on; of a free: what it frees */
};
struct slot {
  uintptr_t data; /* 0: never used; 1: free again */
  uint64_t event;
  uint64_t bytes;
};

static struct event *events;
static struct slot *slots;              /* what malloc gave, by address */
static struct slot mappings[kMappings]; /* data 0: a free one */
static uint64_t event_count, allocation_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int recording, aligned_only;
static pid_t process;   /* a forked child writes nothing */
static char path[4096]; /* of the trace: the environment's, which children do not get */

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void *(*real_memalign)(size_t, size_t);
static void (*real_free)(void *);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_munmap)(void *, size_t);

/* dlsym itself allocates before it has found the real ones. */
static char boot[kBoot];
static size_t boot_used;
static void *boot_allocate(size_t bytes) {
  const size_t at = (boot_used + 63) / 64 * 64;
  if (at + bytes > kBoot) return NULL;
  boot_used = at + bytes;
  return boot + at;
}
static int is_boot(const void *data) {
  return (const char *)data >= boot && (const char *)data < boot + kBoot;
}

static void find_real(void) {
  static int looking;
  if (real_munmap != NULL || looking) return;
  looking = 1;
  *(void **)&real_malloc = dlsym(RTLD_NEXT, "malloc");
  *(void **)&real_calloc = dlsym(RTLD_NEXT, "calloc");
  *(void **)&real_realloc = dlsym(RTLD_NEXT, "realloc");
  *(void **)&real_memalign = dlsym(RTLD_NEXT, "memalign");
  *(void **)&real_free = dlsym(RTLD_NEXT, "free");
  *(void **)&real_mmap = dlsym(RTLD_NEXT, "mmap");
  *(void **)&real_munmap = dlsym(RTLD_NEXT, "munmap");
  events = real_mmap(NULL, kEvents * sizeof *events, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  slots = real_mmap(NULL, kSlots * sizeof *slots, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const char *given = getenv("LMN_MEMORY_TRACE");
  if (given != NULL && strlen(given) < sizeof path) strcpy(path, given);
  unsetenv("LMN_MEMORY_TRACE");
  process = getpid();
  recording = path[0] != 0 && events != MAP_FAILED && slots != MAP_FAILED;
  aligned_only = getenv("LMN_MEMORY_TRACE_ALIGNED") != NULL;
  looking = 0;
}

static struct slot *find(uintptr_t data, int for_insert) {
  uint64_t at = (data >> 4) * 0x9E3779B97F4A7C15u >> 42;
  for (;; at = (at + 1) % kSlots) {
    struct slot *slot = &slots[at];
    if (slot->data == data) return slot;
    if (slot->data == 0 || (for_insert && slot->data == 1)) return for_insert ? slot : NULL;
  }
}

/* With the lock held. */
static void add(struct slot *slot, void *data, size_t bytes) {
  if (slot == NULL || event_count == kEvents) return;
  *slot = (struct slot){(uintptr_t)data, event_count, bytes};
  events[event_count++] = (struct event){bytes == 0 ? 1 : bytes, allocation_count++};
}

static void *took(void *data, size_t bytes) {
  if (data == NULL || !recording) return data;
  pthread_mutex_lock(&lock);
  add(find((uintptr_t)data, 1), data, bytes);
  pthread_mutex_unlock(&lock);
  return data;
}

/* What malloc and its like gave. */
static void *took_plain(void *data, size_t bytes) {
  return aligned_only ? data : took(data, bytes);
}

static void gave(void *data) {
  if (data == NULL || !recording) return;
  pthread_mutex_lock(&lock);
  struct slot *slot = find((uintptr_t)data, 0);
  if (slot != NULL && event_count < kEvents) {
    events[event_count++] = (struct event){0, events[slot->event].number};
    slot->data = 1;
  }
  pthread_mutex_unlock(&lock);
}

void *malloc(size_t bytes) {
  find_real();
  return real_malloc == NULL ? boot_allocate(bytes) : took_plain(real_malloc(bytes), bytes);
}
void *calloc(size_t count, size_t bytes) {
  find_real();
  return real_calloc == NULL ? boot_allocate(count * bytes)
                             : took_plain(real_calloc(count, bytes), count * bytes);
}
void *realloc(void *data, size_t bytes) {
  find_real();
  if (is_boot(data)) return memcpy(malloc(bytes), data, bytes);
  gave(data);
  return took_plain(real_realloc(data, bytes), bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  find_real();
  return took(real_memalign(alignment, bytes), bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **data, size_t alignment, size_t bytes) {
  *data = memalign(alignment, bytes);
  return *data == NULL ? ENOMEM : 0;
}
void free(void *data) {
  if (is_boot(data)) return;
  gave(data);
  real_free(data);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  find_real();
  void *data = real_mmap(address, bytes, protection, flags, file, offset);
  const int memory = file == -1 && (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_STACK) == 0 &&
                     (protection & PROT_WRITE) != 0 && !aligned_only;
  if (data == MAP_FAILED || !memory || !recording) return data;
  pthread_mutex_lock(&lock);
  struct slot *slot = mappings;
  while (slot < mappings + kMappings && slot->data != 0) ++slot;
  add(slot < mappings + kMappings ? slot : NULL, data, bytes);
  pthread_mutex_unlock(&lock);
  return data;
}
int munmap(void *data, size_t bytes) {
  find_real();
  pthread_mutex_lock(&lock);
  const uintptr_t from = (uintptr_t)data;
  for (struct slot *slot = mappings; recording && slot < mappings + kMappings; ++slot) {
    if (slot->data == 0 || from < slot->data || from >= slot->data + slot->bytes) continue;
    slot->bytes -= bytes;
    if (slot->bytes != 0) {
      events[slot->event].bytes = slot->bytes;
      if (from == slot->data) slot->data += bytes;
    } else {
      if (event_count < kEvents) {
        events[event_count++] = (struct event){0, events[slot->event].number};
      }
      slot->data = 0;
    }
    break;
  }
  pthread_mutex_unlock(&lock);
  return real_munmap(data, bytes);
}

__attribute__((destructor)) static void write_trace(void) {
  recording = 0;
  FILE *file = path[0] == 0 || getpid() != process ? NULL : fopen(path, "wb");
  if (file == NULL) return;
  uint64_t allocations = 0;
  for (uint64_t i = 0; i < event_count; ++i) {
    const struct event e = events[i];
    /* As memory.cc says. */
    uint64_t value = e.bytes != 0 ? e.bytes * 2 : (allocations - e.number) * 2 + 1;
    allocations += e.bytes != 0;
    for (; value >= 128; value >>= 7) fputc((int)(value | 128), file);
    fputc((int)value, file);
  }
  fclose(file);
}
