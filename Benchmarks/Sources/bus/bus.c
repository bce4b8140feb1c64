// A method call through dbus-daemon, with the fastest client and service that sd-bus allows: both block, nothing is looked up or
// allocated beside the messages, and the service answers in its vtable's handler.
//
//     bus serve            answers on DBUS_SESSION_BUS_ADDRESS until it is killed
//     bus measure COUNT    prints lines of: name, median and 99th percentile in microseconds, calls per second

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <time.h>

#define NAME "com.example.Echo"
#define PATH "/com/example/Echo"
#define WINDOW 64
#define PAYLOAD_BYTES 64

static char payload[PAYLOAD_BYTES + 1];

static void check(int status, const char *what) {
  if (status >= 0) return;
  fprintf(stderr, "bus: %s failed: %s\n", what, strerror(-status));
  exit(1);
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int echo(sd_bus_message *call, void *data, sd_bus_error *error) {
  (void)data;
  (void)error;
  const char *text;
  int status = sd_bus_message_read(call, "s", &text);
  return status < 0 ? status : sd_bus_reply_method_return(call, "s", text);
}

static const sd_bus_vtable methods[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD("Echo", "s", "s", echo, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END,
};

static void serve(sd_bus *bus) {
  check(sd_bus_add_object_vtable(bus, NULL, PATH, NAME, methods, NULL), "adding the object");
  check(sd_bus_request_name(bus, NAME, 0), "requesting the name");
  puts("ready");
  fflush(stdout);
  for (;;) {
    int status = sd_bus_process(bus, NULL);
    check(status, "processing");
    if (status == 0) check(sd_bus_wait(bus, UINT64_MAX), "waiting");
  }
}

static sd_bus_message *call_message(sd_bus *bus) {
  sd_bus_message *call = NULL;
  check(sd_bus_message_new_method_call(bus, &call, NAME, PATH, NAME, "Echo"), "making a call");
  check(sd_bus_message_append(call, "s", payload), "filling a call");
  return call;
}

static void call_once(sd_bus *bus) {
  sd_bus_message *call = call_message(bus), *reply = NULL;
  sd_bus_error error = SD_BUS_ERROR_NULL;
  check(sd_bus_call(bus, call, 0, &error, &reply), "a call");
  const char *text;
  check(sd_bus_message_read(reply, "s", &text), "reading a reply");
  if (strcmp(text, payload) != 0) check(-1, "the echo");
  sd_bus_message_unref(reply);
  sd_bus_message_unref(call);
}

static int by_value(const void *left, const void *right) {
  double difference = *(const double *)left - *(const double *)right;
  return (difference > 0) - (difference < 0);
}

static void measure_round_trips(sd_bus *bus, int count) {
  double *times = calloc(count, sizeof *times);
  for (int i = 0; i < count / 10; i++) call_once(bus);
  double begin = now_us();
  for (int i = 0; i < count; i++) {
    double before = now_us();
    call_once(bus);
    times[i] = now_us() - before;
  }
  double total = now_us() - begin;
  qsort(times, count, sizeof *times, by_value);
  printf("bus-round-trip\t%.1f\t%.1f\t%.0f\n", times[count / 2], times[count * 99 / 100], count / total * 1e6);
  free(times);
}

static int replies;

static int replied(sd_bus_message *reply, void *data, sd_bus_error *error) {
  (void)data;
  (void)error;
  const char *text;
  check(sd_bus_message_read(reply, "s", &text), "reading a reply");
  replies++;
  return 0;
}

// Always as many calls under way as the window has.
static void measure_pipelined(sd_bus *bus, int count) {
  int sent = 0;
  replies = 0;
  double begin = now_us();
  while (replies < count) {
    while (sent < count && sent - replies < WINDOW) {
      sd_bus_message *call = call_message(bus);
      check(sd_bus_call_async(bus, NULL, call, replied, NULL, 0), "an asynchronous call");
      sd_bus_message_unref(call);
      sent++;
    }
    int status = sd_bus_process(bus, NULL);
    check(status, "processing");
    if (status == 0) check(sd_bus_wait(bus, UINT64_MAX), "waiting");
  }
  double total = now_us() - begin;
  printf("bus-pipelined\t-\t-\t%.0f\n", count / total * 1e6);
}

int main(int argc, char **argv) {
  sd_bus *bus = NULL;
  check(sd_bus_open_user(&bus), "connecting to the bus");
  memset(payload, 'x', PAYLOAD_BYTES);
  if (argc == 2 && strcmp(argv[1], "serve") == 0) serve(bus);
  int count = argc == 3 && strcmp(argv[1], "measure") == 0 ? atoi(argv[2]) : 0;
  if (count < 100) {
    fprintf(stderr, "bus: say serve, or measure and a count of at least 100\n");
    return 2;
  }
  measure_round_trips(bus, count);
  measure_pipelined(bus, count * 4);
  sd_bus_flush_close_unref(bus);
  return 0;
}
