import java.io.File;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Compacts a partition's directory with Apache Kafka's own cleaner, in one round for each time given.
 * Arguments: directory, first uncleanable offset, topic settings as name=value with commas between them, times in ms.
 */
public class CleanLog {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (String pair : args[2].split(",")) {
            int equals = pair.indexOf('=');
            settings.setProperty(pair.substring(0, equals), pair.substring(equals + 1));
        }
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(
            new File(args[0]), new LogConfig(settings), 0L, 0L, scheduler, new BrokerTopicStats(), Time.SYSTEM,
            900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, new LogDirFailureChannel(1),
            true, Optional.empty());
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "throttled", "bytes", Time.SYSTEM);
        for (int round = 3; round < args.length; round++) {
            Cleaner cleaner = new Cleaner(
                0, new SkimpyOffsetMap(1 << 20), 1 << 20, 1 << 20, 0.9, throttler, Time.SYSTEM, partition -> { });
            cleaner.doClean(new LogToClean(log, 0, Long.parseLong(args[1]), false), Long.parseLong(args[round]));
        }
        log.close();
        scheduler.shutdown();
        System.exit(0);
    }
}
