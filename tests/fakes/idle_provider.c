/* A library of an execution provider for ONNX Runtime whose hardware no machine has.

   Only the first members of OrtEpFactory are declared, in the order of the public C header; the others do nothing. */

#include <stddef.h>
#include <stdint.h>

typedef void *Status;

static const char *name(const void *factory) { return "IdleProvider"; }
static const char *vendor(const void *factory) { return "nobody"; }
static uint32_t vendor_id(const void *factory) { return 0; }
static const char *version(const void *factory) { return "1.0.0"; }

static Status devices(void *factory, const void *const *hardware, size_t count, void **out, size_t most, size_t *found) {
    *found = 0;
    return NULL;
}

static Status nothing(void) { return NULL; }

static struct {
    uint32_t version;
    void *members[32];
} factory = {22, {name, vendor, devices, nothing, nothing, vendor_id, version}};

Status CreateEpFactories(
    const char *registration, const void *base, const void *logger, void **factories, size_t most, size_t *count) {
    for (size_t i = 7; i < sizeof factory.members / sizeof *factory.members; i++) factory.members[i] = nothing;
    factories[0] = &factory;
    *count = 1;
    return NULL;
}

Status ReleaseEpFactory(void *released) { return NULL; }
