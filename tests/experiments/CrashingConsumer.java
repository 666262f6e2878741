import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads one record for each poll, with automatic commits, and ends as if killed while it processes the given value.
 *
 * <p>To process a record is to ask for the committed offset until the interval of the commits is over many times. A
 * commit of the record at hand would show. Arguments: servers, topic, group protocol, value.
 */
public final class CrashingConsumer {
    private static final long PROCESSING_NANOS = 50_000_000;
    private static final String INTERVAL_MS = "1";
    private static final int STATUS = 7;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", topic);
        settings.put("group.protocol", args[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "true");
        settings.put("auto.commit.interval.ms", INTERVAL_MS);
        settings.put("max.poll.records", "1");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(topic));
        while (true) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                long committed = process(consumer, new TopicPartition(topic, record.partition()));
                if (record.value().equals(args[3])) {
                    System.out.println("committed " + committed);
                    System.out.flush();
                    Runtime.getRuntime().halt(STATUS);
                }
                System.out.println(record.value());
            }
        }
    }

    private static long process(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        long begin = System.nanoTime();
        long last = -1;
        while (System.nanoTime() - begin < PROCESSING_NANOS) {
            last = committed(consumer, partition);
        }
        return last;
    }

    private static long committed(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
        return found == null ? -1 : found.offset();
    }
}
