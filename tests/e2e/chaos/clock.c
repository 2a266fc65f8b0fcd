// A clock that a test sets: LD_PRELOAD=clock.so CHAOS_CLOCK=FILE, and FILE has an offset in seconds.
// Whoever reads the time of day gets the machine's plus the offset, which is read again twice a
// second. Time since boot, sleeps and timeouts stay as they are: as when a machine's clock is set.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*read_clock)(clockid_t, struct timespec *);

static read_clock machine;
static long offset_s;
static long long next_ms;

static long offset(void) {
  struct timespec since_boot;
  machine(CLOCK_MONOTONIC, &since_boot);
  long long ms = since_boot.tv_sec * 1000LL + since_boot.tv_nsec / 1000000;
  if (ms < next_ms) return offset_s;
  next_ms = ms + 500;
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  char text[32] = {0};
  if (file >= 0) {
    if (read(file, text, sizeof text - 1) > 0) offset_s = atol(text);
    close(file);
  }
  return offset_s;
}

int clock_gettime(clockid_t id, struct timespec *now) {
  if (!machine) machine = (read_clock)dlsym(RTLD_NEXT, "clock_gettime");
  int failed = machine(id, now);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *where) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (where) *where = exact.tv_sec;
  return exact.tv_sec;
}
