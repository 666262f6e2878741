import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Reads a text in base64 from each line as a sasl.jaas.config, and prints its module and options in base64, or "refused". */
public class KafkaJaas {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            String answer;
            try {
                AppConfigurationEntry entry =
                    JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text))).configurationEntries().get(0);
                StringBuilder found = new StringBuilder(encoded(entry.getLoginModuleName()));
                for (Map.Entry<String, ?> option : new TreeMap<>(entry.getOptions()).entrySet())
                    found.append(' ').append(encoded(option.getKey())).append(':').append(encoded((String) option.getValue()));
                answer = found.toString();
            } catch (RuntimeException error) {
                answer = "refused";
            }
            System.out.println(answer);
        }
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
