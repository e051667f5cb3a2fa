/* A libcuda.so.1 for tests of tests/gpu-check: memory and utilization of this process on the fake GPU of tests/fake-nvml.
 *
 * A context takes 100 MiB. Work takes 10 ms, and the GPU counts as used by this process until cuCtxSynchronize has waited for
 * it. The device is the one that CUDA_VISIBLE_DEVICES names by number, else the first. With FAKE_CUDA_NO_PTX, PTX is refused.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOTAL 85899345920ull
#define CONTEXT (100ull << 20)
#define MOST 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long sizes[MOST], held;
static int is_busy, has_context, launched, gpu;

/* held/PID.GPU: bytes, lists, utilization. Written under another name, so that the driver never reads a part of it. */
static void put(void) {
    char part[4200], path[4200];
    const char *directory = getenv("FAKE_NVML_DIR");
    if (!directory) exit(99);
    snprintf(part, sizeof part, "%s/part.%d", directory, (int)getpid());
    snprintf(path, sizeof path, "%s/held/%d.%d", directory, (int)getpid(), gpu);
    FILE *file = fopen(part, "w");
    if (!file) exit(99);
    fprintf(file, "%llu c %d", held, is_busy ? 100 : 0);
    if (fclose(file) || rename(part, path)) exit(99);
}

static void change(int busy, long long bytes) {
    is_busy = busy;
    held += bytes;
    put();
}

__attribute__((destructor)) static void end(void) {
    char path[4200];
    if (!has_context) return;
    snprintf(path, sizeof path, "%s/held/%d.%d", getenv("FAKE_NVML_DIR"), (int)getpid(), gpu);
    unlink(path);
}

unsigned cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (*visible < '0' || *visible > '9') && strncmp(visible, "GPU-", 4)) return 100;
    gpu = visible ? atoi(visible) : 0;
    return flags;
}

unsigned cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal ? 101 : 0;
}

unsigned cuDevicePrimaryCtxRetain(void **context, int device) {
    pthread_mutex_lock(&lock);
    *context = &sizes;
    if (!has_context++) change(0, CONTEXT);
    pthread_mutex_unlock(&lock);
    return device;
}

unsigned cuCtxSetCurrent(void *context) { return context ? 0 : 201; }

unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    char path[4200];
    unsigned long long used = 0;
    snprintf(path, sizeof path, "%s/held", getenv("FAKE_NVML_DIR"));
    DIR *directory = opendir(path);
    if (!directory) return 999;
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *dot = strchr(entry->d_name, '.');
        unsigned long long bytes = 0;
        snprintf(path, sizeof path, "%s/held/%.200s", getenv("FAKE_NVML_DIR"), entry->d_name);
        FILE *file = dot && atoi(dot + 1) == gpu ? fopen(path, "r") : NULL;
        if (!file) continue;
        if (fscanf(file, "%llu", &bytes) == 1) used += bytes;
        fclose(file);
    }
    closedir(directory);
    *total = TOTAL;
    *free_bytes = TOTAL - used;
    return 0;
}

unsigned cuMemAlloc_v2(unsigned long long *place, size_t bytes) {
    unsigned result = 2;
    pthread_mutex_lock(&lock);
    for (int i = 0; result && i < MOST; i++) {
        if (sizes[i]) continue;
        sizes[i] = bytes;
        *place = i + 1;
        change(is_busy, bytes);
        result = 0;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

unsigned cuMemFree_v2(unsigned long long place) {
    if (!place || place > MOST || !sizes[place - 1]) return 1;
    pthread_mutex_lock(&lock);
    change(is_busy, -(long long)sizes[place - 1]);
    sizes[place - 1] = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

unsigned cuMemAllocAsync(unsigned long long *place, size_t bytes, void *stream) {
    return stream ? 400 : cuMemAlloc_v2(place, bytes);
}

unsigned cuMemAllocManaged(unsigned long long *place, size_t bytes, unsigned flags) {
    return flags == 1 ? cuMemAlloc_v2(place, bytes) : 1;
}

unsigned cuStreamSynchronize(void *stream) { return stream ? 400 : 0; }

unsigned cuMemAllocHost_v2(void **place, size_t bytes) { return (*place = calloc(1, bytes)) ? 0 : 2; }

/* One byte in the file "copied" for each KiB. */
unsigned cuMemcpyHtoD_v2(unsigned long long place, const void *from, size_t bytes) {
    char path[4200];
    if (!place || place > MOST || bytes > sizes[place - 1] || !from) return 1;
    snprintf(path, sizeof path, "%s/copied", getenv("FAKE_NVML_DIR"));
    FILE *file = fopen(path, "a");
    if (!file) exit(99);
    for (size_t i = 0; i < bytes / 1024; i++) fputc('.', file);
    return fclose(file) ? 999 : 0;
}

unsigned cuModuleLoadData(void **module, const void *image) {
    *module = &sizes;
    /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_INVALID_PTX */
    if (getenv("FAKE_CUDA_NO_PTX")) return 222;
    return strstr(image, ".entry spin(") ? 0 : 218;
}

unsigned cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "spin") ? 500 : 0;
}

static unsigned work(void) {
    pthread_mutex_lock(&lock);
    launched++;
    if (!is_busy) change(1, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

unsigned cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **parameters, void **extra) {
    int is_right = function && gx * gy * gz * bx * by * bz == 1 && !shared && !stream && parameters[0] && !extra;
    return is_right ? work() : 1;
}

unsigned cuMemsetD32Async(unsigned long long place, unsigned value, size_t words, void *stream) {
    int is_right = place && place <= MOST && words * 4 <= sizes[place - 1] && !value && !stream;
    return is_right ? work() : 1;
}

unsigned cuCtxSynchronize(void) {
    if (launched) usleep(10000);
    pthread_mutex_lock(&lock);
    launched = 0;
    change(0, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}
