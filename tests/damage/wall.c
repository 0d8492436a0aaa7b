/* The machine's clock, set ahead by as many seconds as the file $WALL_FILE says; all other clocks run on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long long ahead(void) {
    long long seconds = 0;
    FILE *file = fopen(getenv("WALL_FILE"), "r");
    if (file != NULL) {
        if (fscanf(file, "%lld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *told) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, told);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) told->tv_sec += ahead();
    return failed;
}

time_t time(time_t *out) {
    struct timespec told;
    clock_gettime(CLOCK_REALTIME, &told);
    if (out != NULL) *out = told.tv_sec;
    return told.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec told;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &told);
    out->tv_sec = told.tv_sec;
    out->tv_usec = told.tv_nsec / 1000;
    return 0;
}
