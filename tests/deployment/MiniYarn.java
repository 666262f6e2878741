import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * A YARN on this machine: a resource manager and two node managers in one process. Writes its settings, yarn-site.xml, into the folder that is
 * named, prints READY, and lives until its standard input ends.
 */
public class MiniYarn {
  public static void main(String[] args) throws Exception {
    YarnConfiguration conf = new YarnConfiguration();
    conf.setInt("yarn.scheduler.minimum-allocation-mb", 256);
    conf.setInt("yarn.nodemanager.resource.memory-mb", 8192);
    conf.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
    conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
    conf.set("yarn.scheduler.capacity.root.queues", "default");
    conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
    conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
    Path folder = Path.of(args[0]);
    System.setProperty("test.build.data", folder.resolve("yarn").toString());
    try (MiniYARNCluster cluster = new MiniYARNCluster("yarn", 2, 1, 1)) {
      cluster.init(conf);
      cluster.start();
      if (!cluster.waitForNodeManagersToConnect(60_000)) {
        throw new IllegalStateException("the node managers did not connect");
      }
      try (OutputStream settings = Files.newOutputStream(folder.resolve("yarn-site.xml"))) {
        cluster.getConfig().writeXml(settings);
      }
      System.out.println("READY");
      System.in.readAllBytes();
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1); // other threads would go on
    }
    System.exit(0);
  }
}
