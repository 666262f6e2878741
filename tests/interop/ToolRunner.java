import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one Java, since starting a Java for each costs seconds.
 *
 * A line of standard input is a class and its arguments with tabs between them. The answer is a line with the exit
 * status and the number of bytes that follow: what the tool said, standard output and standard error together.
 */
public class ToolRunner {
    /** Ends a tool in the place of System.exit. Tools that catch everything exit a second time: the first one counts. */
    static final class Exited extends RuntimeException {
        Exited() {
            super("", null, false, false);
        }
    }

    private static Integer exitStatus;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((status, message) -> {
            exitStatus = exitStatus == null ? status : exitStatus;
            throw new Exited();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            int status = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            out.flush();
            answers.println(status + " " + said.size());
            answers.write(said.toByteArray());
            answers.flush();
        }
    }

    private static int run(String tool, String[] arguments) throws Exception {
        exitStatus = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited) {
                return exitStatus;
            }
            error.getCause().printStackTrace();
            return 1;
        }
    }
}
