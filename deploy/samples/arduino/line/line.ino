// A device with Arduino (ESP32 or ESP8266) and the library "MQTT" by Joel Gaehwiler (256dpi), which waits for PUBACK.
// PubSubClient publishes with QoS 0 only: nothing tells such a device whether its message arrived.
#ifdef ESP32
#include <WiFi.h>
#else
#include <ESP8266WiFi.h>
#endif
#include <MQTT.h>

const char NETWORK[] = "plant";
const char NETWORK_KEY[] = "";
const char GATEWAY[] = "gateway.plant.example";

WiFiClient network;
MQTTClient client(512);
unsigned long last = 0;
unsigned number = 0;

void commanded(String &topic, String &payload) {
  Serial.println("command on " + topic + ": " + payload);
}

void connect() {
  while (WiFi.status() != WL_CONNECTED) delay(500);
  while (!client.connect("line-7-arduino")) {
    Serial.printf("refused with %d, or not reached (%d)\n", client.returnCode(), client.lastError());
    delay(2000);
  }
  client.subscribe("plant/lima/cmd", 1);
}

void setup() {
  Serial.begin(115200);
  WiFi.begin(NETWORK, NETWORK_KEY);
  client.begin(GATEWAY, 1883, network);
  client.setCleanSession(false);  // commands wait on the gateway while the device is away
  client.onMessage(commanded);
  connect();
}

void loop() {
  client.loop();
  delay(10);  // for the network of ESP8266
  if (!client.connected()) connect();
  if (millis() - last >= 1000) {
    String reading = String(20 + number % 10) + ".5";
    // true when PUBACK has come: the message is on its queue, on disk. Otherwise the same reading goes again.
    if (client.publish("plant/lima/line/7/temperature", reading, false, 1)) number++;
    last = millis();
  }
}
