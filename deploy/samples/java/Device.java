// A device with paho's Java client: readings of QoS 1, each acknowledged when it is committed; commands come back.
//
//   Maven: org.eclipse.paho:org.eclipse.paho.client.mqttv3:1.2.5
//   java -cp org.eclipse.paho.client.mqttv3-1.2.5.jar Device.java tcp://gateway.plant.example:1883
import java.nio.charset.StandardCharsets;
import org.eclipse.paho.client.mqttv3.IMqttMessageListener;
import org.eclipse.paho.client.mqttv3.MqttClient;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.MqttException;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

public final class Device {
    private static final String READINGS = "plant/lima/line/7/temperature";
    private static final String COMMANDS = "plant/lima/cmd";

    private Device() {
    }

    public static void main(String[] words) throws MqttException {
        String address = words.length > 0 ? words[0] : "tcp://127.0.0.1:1883";
        try (MqttClient client = new MqttClient(address, "line-7-java", new MemoryPersistence())) {
            MqttConnectOptions options = new MqttConnectOptions();
            options.setCleanSession(false); // commands wait on the gateway while the device is away
            String user = System.getenv("MQTT_USER");
            if (user != null) {
                options.setUserName(user);
                options.setPassword(System.getenv("MQTT_PASSWORD").toCharArray());
            }
            client.connect(options);
            IMqttMessageListener listener = (topic, message) ->
                System.out.println("command on " + topic + ": " + new String(message.getPayload(), StandardCharsets.UTF_8));
            client.subscribe(COMMANDS, 1, listener);
            for (int number = 0; number < 3; number++) {
                String reading = (20 + number) + ".5";
                // returns when PUBACK has come: the message is on its queue, on disk
                client.publish(READINGS, reading.getBytes(StandardCharsets.UTF_8), 1, false);
                System.out.println("committed " + reading);
            }
            client.disconnect();
        }
    }
}
