import org.apache.kafka.clients.admin.Admin;

import java.util.Map;

/** kafka-cluster.sh unregister-controller, of which no published tool knows. Arguments: BOOTSTRAP_SERVER ID. */
public class UnregisterController {
    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin.unregisterController(Integer.parseInt(arguments[1])).all().get();
        }
    }
}
