// A consumer of the queue with IBM MQ classes for JMS (Jakarta Messaging 3), against IBM MQ.
// The gateway's own queue manager speaks no MQ channels: develop with ibmmq, pymqi or C against it.
//
//   Maven: com.ibm.mq:com.ibm.mq.jakarta.client:9.4.0.0
//   MQ_PASSWORD=... java -cp ... Consumer.java mq1 1414 QM1 DEV.APP.SVRCONN app TELEMETRY.LIMA
import com.ibm.msg.client.jakarta.jms.JmsConnectionFactory;
import com.ibm.msg.client.jakarta.jms.JmsFactoryFactory;
import com.ibm.msg.client.jakarta.wmq.WMQConstants;
import jakarta.jms.BytesMessage;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.TextMessage;
import java.nio.charset.StandardCharsets;

public final class Consumer {
    private Consumer() {
    }

    public static void main(String[] words) throws JMSException {
        if (words.length != 6) {
            System.err.println("use: Consumer HOST PORT QUEUE_MANAGER CHANNEL USER QUEUE");
            System.exit(2);
        }
        JmsConnectionFactory factory = JmsFactoryFactory.getInstance(WMQConstants.JAKARTA_WMQ_PROVIDER).createConnectionFactory();
        factory.setStringProperty(WMQConstants.WMQ_HOST_NAME, words[0]);
        factory.setIntProperty(WMQConstants.WMQ_PORT, Integer.parseInt(words[1]));
        factory.setStringProperty(WMQConstants.WMQ_QUEUE_MANAGER, words[2]);
        factory.setStringProperty(WMQConstants.WMQ_CHANNEL, words[3]);
        factory.setIntProperty(WMQConstants.WMQ_CONNECTION_MODE, WMQConstants.WMQ_CM_CLIENT);
        factory.setBooleanProperty(WMQConstants.USER_AUTHENTICATION_MQCSP, true);
        // Transacted: a message leaves the queue when its work is done, and comes back when it failed.
        try (JMSContext context = factory.createContext(words[4], System.getenv("MQ_PASSWORD"), JMSContext.SESSION_TRANSACTED)) {
            // Properties of the rule can be selected by, with their types: properties: {line: "{line:int}"}
            JMSConsumer consumer = context.createConsumer(context.createQueue("queue:///" + words[5]), "line >= 1");
            for (Message message = consumer.receive(); message != null; message = consumer.receive()) {
                System.out.println(message.getStringProperty("site") + " line " + message.getIntProperty("line") + ": " + text(message));
                context.commit();
            }
        }
    }

    /** `format: string` in the rule makes a TextMessage, `bytes` a BytesMessage. */
    private static String text(Message message) throws JMSException {
        if (message instanceof TextMessage) {
            return ((TextMessage) message).getText();
        }
        BytesMessage bytes = (BytesMessage) message;
        byte[] body = new byte[(int) bytes.getBodyLength()];
        bytes.readBytes(body);
        return new String(body, StandardCharsets.UTF_8);
    }
}
