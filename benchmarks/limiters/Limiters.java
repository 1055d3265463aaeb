import com.netflix.concurrency.limits.Limit;
import com.netflix.concurrency.limits.limit.AIMDLimit;
import com.netflix.concurrency.limits.limit.Gradient2Limit;
import com.netflix.concurrency.limits.limit.VegasLimit;
import com.netflix.concurrency.limits.limit.WindowedLimit;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.PriorityQueue;

/**
 * Netflix concurrency-limits before the servers of {@code world.py}: a trace of (arrival, service) in, what became of each
 * request out. Its limits take their clock with each sample, so an hour takes seconds.
 *
 * <p>Arguments: the limit's name, servers, most requests at once, trace, outcome. Both files hold little-endian doubles:
 * pairs of seconds, and pairs of (latency in seconds, or -1 where it was rejected; the limit then).
 */
public final class Limiters {
  private static final double NANOS = 1e9;

  private record Running(double ends, double began, int inFlight) {}

  public static void main(String[] arguments) throws IOException {
    int servers = Integer.parseInt(arguments[1]);
    Limit limit = named(arguments[0], Integer.parseInt(arguments[2]));
    ByteBuffer trace =
        ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[3]))).order(ByteOrder.LITTLE_ENDIAN);
    ByteBuffer outcome = ByteBuffer.allocate(trace.capacity()).order(ByteOrder.LITTLE_ENDIAN);
    PriorityQueue<Running> running = new PriorityQueue<>((a, b) -> Double.compare(a.ends, b.ends));
    PriorityQueue<Double> free = new PriorityQueue<>();
    for (int server = 0; server < servers; server++) {
      free.add(0.0);
    }
    while (trace.hasRemaining()) {
      double now = trace.getDouble();
      double service = trace.getDouble();
      while (!running.isEmpty() && running.peek().ends <= now) {
        Running done = running.poll();
        limit.onSample(
            (long) (done.began * NANOS), (long) ((done.ends - done.began) * NANOS), done.inFlight, false);
      }
      if (running.size() < limit.getLimit()) {
        double ends = Math.max(now, free.poll()) + service;
        free.add(ends);
        running.add(new Running(ends, now, running.size() + 1));
        outcome.putDouble(ends - now);
      } else {
        outcome.putDouble(-1.0);
      }
      outcome.putDouble(limit.getLimit());
    }
    Files.write(Path.of(arguments[4]), outcome.array());
  }

  private static Limit named(String name, int most) {
    return switch (name) {
      case "gradient2" ->
          WindowedLimit.newBuilder()
              .build(Gradient2Limit.newBuilder().initialLimit(20).maxConcurrency(most).build());
      case "vegas" ->
          WindowedLimit.newBuilder()
              .build(VegasLimit.newBuilder().initialLimit(20).maxConcurrency(most).build());
      case "aimd" -> AIMDLimit.newBuilder().initialLimit(20).maxLimit(most).build();
      default -> throw new IllegalArgumentException("no limit is called " + name);
    };
  }
}
