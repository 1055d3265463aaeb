import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.prometheus.PrometheusConfig;
import io.micrometer.prometheus.PrometheusMeterRegistry;
import java.util.HashMap;
import java.util.Map;
import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.MetricsConfiguration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.server.metrics.ActiveMQMetricsPlugin;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;

/**
 * Prints the page that an embedded ActiveMQ Artemis gives Prometheus: recorded/artemis.txt is its output.
 *
 * <p>Ran with org.apache.activemq:artemis-server:2.44.0 and io.micrometer:micrometer-registry-prometheus-simpleclient:1.14.2
 * with what they depend on. Of 13 messages to "orders" 4 are acknowledged, 1 was given up after its first delivery, 3 are
 * scheduled, 2 are with a consumer and 3 wait.
 */
public final class ArtemisPage {
  /** The registry that Artemis' own plugin for Prometheus makes; that one serves it by HTTP. */
  public static final class Registry implements ActiveMQMetricsPlugin {
    static final PrometheusMeterRegistry KEPT = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);

    @Override
    public ActiveMQMetricsPlugin init(Map<String, String> options) {
      return this;
    }

    @Override
    public MeterRegistry getRegistry() {
      return KEPT;
    }
  }

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new ConfigurationImpl().setPersistenceEnabled(false).setSecurityEnabled(false);
    configuration.addAcceptorConfiguration("vm", "vm://0");
    configuration.setMetricsConfiguration(
        new MetricsConfiguration().setPlugin(new Registry().init(new HashMap<>())).setJvmMemory(false));
    AddressSettings settings = new AddressSettings();
    settings.setMaxDeliveryAttempts(1).setDeadLetterAddress(SimpleString.of("DLQ"));
    configuration.addAddressSetting("orders", settings);
    EmbeddedActiveMQ broker = new EmbeddedActiveMQ().setConfiguration(configuration).start();
    ClientSession session =
        ActiveMQClient.createServerLocator("vm://0").setConsumerWindowSize(0).createSessionFactory().createSession(false, true, true, false);
    for (String name : new String[] {"orders", "DLQ"}) {
      session.createQueue(QueueConfiguration.of(name).setAddress(name).setRoutingType(RoutingType.ANYCAST));
    }
    session.start();
    ClientProducer producer = session.createProducer("orders");
    for (int number = 0; number < 13; number++) {
      ClientMessage message = session.createMessage(false);
      if (number >= 10) {
        message.putLongProperty(Message.HDR_SCHEDULED_DELIVERY_TIME, System.currentTimeMillis() + 3_600_000L);
      }
      producer.send(message);
    }
    ClientConsumer consumer = session.createConsumer("orders");
    for (int number = 0; number < 4; number++) {
      consumer.receive(10_000).individualAcknowledge();
    }
    ClientSession other = session.getSessionFactory().createSession(false, true, false, false);
    other.start();
    ClientConsumer failing = other.createConsumer("orders");
    failing.receive(10_000).acknowledge();
    other.rollback();
    failing.close();
    other.close();
    consumer.receive(10_000);
    consumer.receive(10_000);
    Thread.sleep(500);
    System.out.print(Registry.KEPT.scrape());
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
